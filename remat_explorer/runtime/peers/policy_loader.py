"""Train a model with the checkpoints of a policy file. This program needs torch and nothing else.

    from policy_loader import apply_policy
    apply_policy(model, "policy.json")  # before it is wrapped for data parallelism or sharded

From then on each module that the file names is a region of torch.utils.checkpoint: it keeps its inputs and what the
file marks as saved, and runs again in the backward pass. Gradients are those of plain training. Without gradients,
as in evaluation, nothing changes. A model whose modules or operators differ from the file's is refused.
"""

import functools
import json
import math

import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

FORMAT, VERSION = "remat-explorer/policy", 1
KEYS = ("format", "version", "graph", "budget", "cost", "peak", "all_once", "optimum", "lower_bound", "regions")
REGION_KEYS = ("module", "operators", "saved", "constants", "random")


def apply_policy(model, path):
    """Put the checkpoints of the file at ``path`` into ``model``, and return the modules that have one.

    Raises:
        ValueError: if the file is no policy, or names a module that the model does not have; no module is changed
            then. Whether operators differ is seen when a module first runs.
        OSError: if the file cannot be read.
    """
    return put_checkpoints(model, read_policy(path))


def read_policy(path):
    """The regions of a policy file; a ValueError quotes the first entry that is none."""
    try:
        with open(path, encoding="utf-8") as file:
            policy = json.load(file, object_pairs_hook=without_duplicates)
    except RecursionError:
        raise ValueError(f"{str(path)!r} is not read: its lists and objects are nested too deep") from None
    except ValueError as problem:
        raise ValueError(f"{str(path)!r} is not a JSON file of a policy: {problem}") from None
    if not isinstance(policy, dict) or policy.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} is no file of the format {FORMAT!r}")
    if policy.get("version") != VERSION or isinstance(policy["version"], bool):
        raise ValueError(f"{str(path)!r} has version {policy.get('version')!r}; this program reads version {VERSION}")
    try:
        return checked_regions(policy)
    except ValueError as problem:
        raise ValueError(f"{str(path)!r}: {problem}") from None


def without_duplicates(pairs):
    """A JSON object, in which no key may stand twice."""
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return entries


def checked_regions(policy):
    """The regions of a parsed policy file, all of whose entries are what they must be."""
    require_keys(policy, KEYS, "the policy")
    require_keys(policy["graph"], ("name", "sha256"), "the entry 'graph'")
    for name, text in policy["graph"].items():
        require(isinstance(text, str), f"the {name} of the graph", text)
    for name in ("budget", "peak"):
        require(is_whole(policy[name], 2**63), f"the {name}", policy[name])
    for name in ("cost", "all_once", "optimum", "lower_bound"):
        missing = policy[name] is None and name in ("optimum", "lower_bound")
        require(missing or is_number(policy[name]), f"the {name}", policy[name])
    if policy["peak"] > policy["budget"]:
        raise ValueError(f"the peak {policy['peak']} is larger than the budget {policy['budget']}")
    require(isinstance(policy["regions"], list), "the list of regions", policy["regions"])
    for region in policy["regions"]:
        require_keys(region, REGION_KEYS, "a region")
        module, operators, saved, constants, random = (region[key] for key in REGION_KEYS)
        require(isinstance(module, str) and module != "", "the module of a region", module)
        require(is_list_of_names(operators), f"the list of operators of {module!r}", operators)
        places = isinstance(saved, list) and all(is_whole(place, len(operators)) for place in saved)
        require(places and sorted(set(saved)) == saved, f"what is saved of {module!r}", saved)
        named = is_list_of_names(constants) and sorted(set(constants)) == sorted(constants)
        require(named and set(constants) <= set(operators), f"the list of constants of {module!r}", constants)
        require(isinstance(random, bool), f"the entry 'random' of {module!r}", random)
    return policy["regions"]


def require_keys(entry, keys, what):
    """Refuse what is no object with exactly these keys."""
    require(isinstance(entry, dict), what, entry)
    if set(entry) != set(keys):
        wrong = sorted(set(entry) ^ set(keys))[0]
        raise ValueError(f"{what} {'has the unknown' if wrong in entry else 'lacks the'} key {wrong!r}")


def require(holds, what, entry):
    """Refuse an entry that is not what it must be."""
    if not holds:
        try:
            text = repr(entry)
        except RecursionError:
            text = f"a {type(entry).__name__} that is nested too deep"
        raise ValueError(f"{what} is none: {text if len(text) <= 100 else text[:99] + '…'}")


def is_whole(entry, end):
    """Whether an entry is a whole number from 0 to below ``end``."""
    return isinstance(entry, int) and not isinstance(entry, bool) and 0 <= entry < end


def is_number(entry):
    """Whether an entry is a finite number of at least 0."""
    return isinstance(entry, (int, float)) and not isinstance(entry, bool) and 0 <= entry < math.inf


def is_list_of_names(entry):
    """Whether an entry is a list of texts."""
    return isinstance(entry, list) and all(isinstance(name, str) for name in entry)


def put_checkpoints(model, regions):
    """Put the checkpoints of regions that are checked into ``model``: all of them, or none where one is refused."""
    modules = [find_module(model, region["module"]) for region in regions]
    for module, region in zip(modules, regions, strict=True):
        path = region["module"]
        if isinstance(module.forward, functools.partial) and module.forward.func is run_region:
            raise ValueError(f"the module {path!r} has a policy already")
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(f"the module {path!r} is TorchScript, around which no checkpoint can be put")
        if getattr(type(module), "forward", None) in (None, torch.nn.Module.forward) and "forward" not in vars(module):
            raise ValueError(f"the module {path!r} ({type(module).__name__}) never runs by itself; name its parts")
        inside = set(module.modules())
        for other, its in zip(modules, regions, strict=True):
            if its is not region and other in inside:
                raise ValueError(f"the module {its['module']!r} is named twice, or lies within {path!r}")
    for module, region in zip(modules, regions, strict=True):
        module.forward = functools.partial(run_region, module.forward, region, module)
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


def is_in_place(operator):
    """Whether an operator writes to an argument; those of higher order, as flex_attention, have no schema."""
    return hasattr(operator, "_schema") and operator._schema.is_mutable


def name_of(operator):
    """The operator as a policy lists it: relu_ is relu, in place."""
    name = str(operator)
    if not is_in_place(operator):
        return name
    packet, overload = name.rsplit(".", 1)
    return f"{packet.removesuffix('_')}.{overload}"


def draws(operator, args, kwargs):
    """Whether this call draws random numbers, by PyTorch's own tags; attention does only if it drops something."""
    if torch.Tag.nondeterministic_seeded not in getattr(operator, "tags", ()):
        return False
    for place, argument in enumerate(operator._schema.arguments):
        if argument.name == "dropout_p":
            return bool(args[place] if place < len(args) else kwargs.get("dropout_p", argument.default_value))
    return True


def has_gradient(given):
    """Whether these arguments take part in the backward pass; masks, for one, do not."""
    return torch.is_grad_enabled() and any(
        isinstance(one, torch.Tensor) and one.requires_grad for one in tree_leaves(given)
    )


class Selection:
    """Says for each operator of a region, from its call to its second run, whether the result is saved."""

    def __init__(self, region):
        self.module, self.operators, self.random = region["module"], region["operators"], region["random"]
        self.listed, self.saved, self.constants = set(self.operators), set(region["saved"]), set(region["constants"])
        self.seen = {False: 0, True: 0}  # in the forward pass, and in the second run, of which older releases ask again

    def __call__(self, context, operator, *args, **kwargs):
        name, random = name_of(operator), draws(operator, args, kwargs)
        if random:
            self.require_repeatable(operator, kwargs)
        if name not in self.listed or not (name in self.constants or has_gradient((args, kwargs))):
            return CheckpointPolicy.MUST_RECOMPUTE
        place = self.seen[context.is_recompute]
        self.seen[context.is_recompute] += 1
        if place >= len(self.operators) or self.operators[place] != name:
            raise ValueError(self.differs(place, name))
        if place not in self.saved:
            return CheckpointPolicy.MUST_RECOMPUTE
        if is_in_place(operator):
            raise ValueError(
                f"the policy saves {operator} of {self.module!r}, which writes in place and cannot be saved"
            )
        if random:
            raise ValueError(
                f"the policy saves {operator} of {self.module!r}, which draws random numbers: if it did not run again, "
                "what is drawn after it would differ"
            )
        return CheckpointPolicy.MUST_SAVE

    def require_repeatable(self, operator, kwargs):
        """Refuse a draw that a second run would not repeat."""
        if not self.random:
            raise ValueError(
                f"{operator} of the module {self.module!r} draws random numbers, and the policy says that it draws "
                "none, so that a second run would draw others; make a policy for this model, in training mode"
            )
        if kwargs.get("generator") is not None:
            raise ValueError(
                f"{operator} of the module {self.module!r} draws from a torch.Generator of its own, which a second run "
                "would not find as the first one did; draw from the default one"
            )

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


def contexts_of(selection):
    """What surrounds the two runs of a region. Casts are never saved, and the second run may have more of them.

    Autocast keeps the cast of a weight for the whole forward pass, so that a region after the first one that reads the
    weight has none; in the second run it has.
    """
    first, second = create_selective_checkpoint_contexts(selection)
    second.__class__ = with_casts(type(second))
    return first, second


@functools.cache
def with_casts(kind):
    """PyTorch's mode of second runs, which expects the operators of the first one, but for casts."""

    class SecondRun(kind):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten._to_copy.default:
                return func(*args, **(kwargs or {}))
            return super().__torch_dispatch__(func, types, args, kwargs)

    return SecondRun


def state_of(module):
    """What tells whether a module has written to its buffers."""
    return [(name, id(one), -1 if one.is_inference() else one._version) for name, one in module.named_buffers()]


def run_region(forward, region, module, *args, **kwargs):
    """Run a module under its checkpoint."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    args, kwargs = tree_map(lambda leaf: leaf, (args, kwargs))  # lists of its own: a caller's may grow
    selection, before = Selection(region), state_of(module)
    result = checkpoint(
        forward,
        *args,
        use_reentrant=False,
        preserve_rng_state=region["random"],
        context_fn=functools.partial(contexts_of, selection),
        **kwargs,
    )
    selection.finish()
    changed = sorted({name for name, *_ in set(state_of(module)) ^ set(before)})
    if changed:
        raise ValueError(
            f"the module {region['module']!r} changes its buffer {changed[0]!r} when it runs, and would do so again in "
            "the backward pass; make a policy for this model"
        )
    return result
