"""What the explorer knows and what is chosen in it, without widgets.

`state` is the one object that all observe; it builds on `navigation` (cursor, zoom, search, folding),
`edited_schedule` and `implementation_choices`. `strategy_choice` says what the chosen strategy is asked.
"""
