"""The table of the dynamic program of persistent checkpointing, in compiled code."""

from __future__ import annotations

from remat_explorer.machine_code import entry


@entry
def fill_column(best, t, column):
    """Set C[s,t,m] for every s up to t, and every m; see `chain_program`.

    ``best`` is C, float64 of shape (L + 1, L + 1, slots + 1), infinite where it is not set yet; columns before ``t``
    are set.
    """
    length = best.shape[2]
    for m in range(column.restoring_slots, length):
        best[t, t, m] = column.restoring
    for s in range(t - 1, -1, -1):
        for m in range(max(column.saving_slots[s], column.saved[s]), length):
            best[s, t, m] = column.saving[s] + best[s + 1, t, m - column.saved[s]]
        cost, peak = 0.0, column.peak_through[s]
        for r in range(s + 1, t + 1):
            cost += column.through[r - 1]
            if r > s + 1:
                peak = max(peak, column.peak_from_input[r - 1])
            slots = -(-(column.begins + peak) // column.slot)
            for m in range(max(slots, column.kept[r], column.left[r]), length):
                total = cost + best[r, t, m - column.kept[r]] + best[s, r - 1, m - column.left[r]]
                if total < best[s, t, m]:
                    best[s, t, m] = total
