"""What is asked of the panel *Fit*, and its answer, as traits."""

from __future__ import annotations

from typing import Any

import traitlets as t

# Keys of `remat_explorer.fit.optimizers.OPTIMIZERS`, which is imported with torch, for which no screen should wait.
OPTIMIZERS = ("adamw", "adam", "adam8bit", "adafactor", "lion", "momentum", "sgd")
PRECISIONS = ("bfloat16", "float32", "autocast")


class Fitting(t.HasTraits):
    """Memory and recipe of the question whether a training step fits, what is being done for it, and the answer."""

    fit_memory = t.Unicode("24 GB", help="Memory of the device, such as '24 GB'.")
    fit_optimizer = t.Enum(OPTIMIZERS, "adamw", help="Whose state has to fit, too.")
    fit_precision = t.Enum(PRECISIONS, "bfloat16", help="Of a model of the zoo.")
    fit_master_weights = t.Bool(False, help="Whether a float32 copy of parameters in half precision is kept.")
    fit_full_gradients = t.Bool(False, help="Whether gradients are kept in float32.")
    fit_asked = t.Bool(False, help="Whether an answer is wanted; False once it is there, or to give it up.")
    fit_doing = t.Unicode("", help="What is being done for the answer; empty where nothing is.")
    fit_refusal = t.Unicode("", help="Why there is no answer, or empty.")
    fitted: Any = t.Any(None, help="The answer, a `remat_explorer.fit.Fit`, or None.")
