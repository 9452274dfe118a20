"""Executes plans on the CPU and on CUDA: trains models by them, and measures them.

Training, in the order in which a step goes through it:

- `rematerialize`: the one line that people call, and the module that it returns.
- `plan_dispatcher`: which plan a training step runs, and when another one is made. `call_signature`, `model_state`,
  `preconditions` and `plan_mismatch` say whether a plan serves a call, and what to tell people where it does not.
- `step_planner`: capture, profile, solve, generate; `size_variants` and `retain_graph` plan for smaller inputs and for
  several backward passes.
- `forward_backward`: the generated code of the forward and of the backward pass, written by `emitter` and
  `backward_emitter`, with `strided_gradients` and `gradient_handover`.
- `training_run`: runs that code as a function that autograd can differentiate, with `output_guard` and `oom_errors`.

Measuring: `measure_plan` runs a solution by the `plan_runner`, beside plain PyTorch (`eager`), and gives a
`measurement`; `comparison` and `first_difference` say how far results are apart. `interpreter` and `generated_step` run
a whole step.

`compiled` brings plans into torch.compile, `peers` measures PyTorch's own checkpointing.
"""

from remat_explorer.capture import peaks_of_process
from remat_explorer.runtime.interpreter import Interpreter, StepOutcome
from remat_explorer.runtime.measure_plan import measure
from remat_explorer.runtime.measurement import Measurement
from remat_explorer.runtime.peers import PeerMeasurement
from remat_explorer.runtime.rematerialize import rematerialize
