"""What several heuristics share: chains, articulation points, and schedules from a static choice of checkpoints."""
