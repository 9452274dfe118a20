"""What each kind of implementations is worth: `ablation_run` (`ablation`) finds it, `ablation_result` holds it."""
