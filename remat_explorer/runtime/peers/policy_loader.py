"""Train a model with the checkpoints of a policy file. This program needs torch and nothing else.

    from policy_loader import apply_policy
    apply_policy(model, "policy.json")  # before it is wrapped for data parallelism or sharded

From then on each module that the file names is a region of torch.utils.checkpoint: it keeps its inputs and what the
file marks as saved, and runs again in the backward pass. Gradients are those of plain training. Without gradients,
as in evaluation, nothing changes. A model whose modules or operators differ from the file's is refused.
"""

import functools
import json

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

FORMAT, VERSION = "remat-explorer/policy", 1


def apply_policy(model, path):
    """Put the checkpoints of the file at ``path`` into ``model``, and return the modules that have one.

    Raises:
        ValueError: if the file is no policy, or names a module that the model does not have. Whether operators differ
            is seen when a module first runs.
    """
    with open(path, encoding="utf-8") as file:
        policy = json.load(file)
    if not isinstance(policy, dict) or policy.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} is no file of the format {FORMAT!r}")
    if policy.get("version") != VERSION:
        raise ValueError(f"{str(path)!r} has version {policy.get('version')!r}; this program reads version {VERSION}")
    modules = [find_module(model, region["module"]) for region in policy["regions"]]  # all, before the first changes
    for module, region in zip(modules, policy["regions"], strict=True):
        if isinstance(module.forward, functools.partial) and module.forward.func is run_region:
            raise ValueError(f"the module {region['module']!r} has a policy already")
    for module, region in zip(modules, policy["regions"], strict=True):
        module.forward = functools.partial(run_region, module.forward, region)
    if modules and getattr(getattr(model, "config", None), "use_cache", False):
        model.config.use_cache = False  # a module that runs again would put keys and values there again
    return modules


def find_module(model, path):
    """The module with this path; the name of a model's only part may be left out."""
    names = dict(model.named_modules())
    alone = [name for name, _ in model.named_children()]
    for name in (path, f"{alone[0]}.{path}" if len(alone) == 1 else path):
        if name in names:
            return names[name]
    raise ValueError(f"the policy has a region for the module {path!r}, which {type(model).__name__} does not have")


class Selection:
    """Says for each operator of a region, from its call to its second run, whether the result is saved."""

    def __init__(self, region):
        self.module, self.operators = region["module"], region["operators"]
        self.listed, self.saved, self.constants = set(self.operators), set(region["saved"]), set(region["constants"])
        self.seen = {False: 0, True: 0}  # in the forward pass, and in the second run, of which older releases ask again

    def __call__(self, context, operator, *args, **kwargs):
        name = str(operator)
        if operator._schema.is_mutable:  # relu_ is relu, in place
            packet, overload = name.rsplit(".", 1)
            name = f"{packet.removesuffix('_')}.{overload}"
        if name not in self.listed or not (name in self.constants or has_gradient((args, kwargs))):
            return CheckpointPolicy.MUST_RECOMPUTE
        place = self.seen[context.is_recompute]
        self.seen[context.is_recompute] += 1
        if place >= len(self.operators) or self.operators[place] != name:
            raise ValueError(self.differs(place, name))
        if place not in self.saved:
            return CheckpointPolicy.MUST_RECOMPUTE
        if operator._schema.is_mutable:
            raise ValueError(
                f"the policy saves {operator} of {self.module!r}, which writes in place and cannot be saved"
            )
        return CheckpointPolicy.MUST_SAVE

    def finish(self):
        """Refuse a run that had fewer operators than the policy."""
        if self.seen[False] != len(self.operators):
            raise ValueError(self.differs(self.seen[False], "the end"))

    def differs(self, place, found):
        expected = self.operators[place] if place < len(self.operators) else "the end"
        return (
            f"the operators of the module {self.module!r} are not those of the policy: number {place} is {found}, and "
            f"was {expected}; make a policy for this model"
        )


def has_gradient(given):
    """Whether these arguments take part in the backward pass; masks, for one, do not."""
    return torch.is_grad_enabled() and any(
        isinstance(one, torch.Tensor) and one.requires_grad for one in tree_leaves(given)
    )


def run_region(forward, region, *args, **kwargs):
    """Run a module under its checkpoint."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    args, kwargs = tree_map(lambda leaf: leaf, (args, kwargs))  # lists of its own: a caller's may grow
    selection = Selection(region)
    result = checkpoint(
        forward,
        *args,
        use_reentrant=False,
        preserve_rng_state=region["random"],
        context_fn=functools.partial(create_selective_checkpoint_contexts, selection),
        **kwargs,
    )
    selection.finish()
    return result
