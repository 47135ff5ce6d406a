"""The policy that `policy.name` chooses: its class, and one made for a run."""

from dataclasses import replace

from bagpipe_hpc.config.doors import POLICIES, SettingError
from bagpipe_hpc.config.schema import PolicyConfig
from bagpipe_hpc.planning.policy import Policy
from bagpipe_hpc.planning.run_facts import RunFacts
from bagpipe_hpc.planning.sharing_choice import choose_sharing


def policy_class(name: str) -> type[Policy]:
    """The class that `policy.name` names.

    Raises:
        SettingError: there is no such class, or it is not a `Policy`.
    """
    found = POLICIES.implementation(name)
    if not (isinstance(found, type) and issubclass(found, Policy)):
        raise SettingError(POLICIES.key, name, f"must be a subclass of {Policy.__module__}:{Policy.__name__}")
    return found


def keeps_order(name: str) -> bool:
    """Whether the policy that `policy.name` names leaves the order of samples as it is."""
    return policy_class(name).order.__func__ is Policy.order.__func__  # type: ignore[attr-defined]


def shares_out_samples(name: str) -> bool:
    """Whether the policy that `policy.name` names gives samples to trainers in its own way, which it may learn."""
    return policy_class(name).assignment is not Policy.assignment


def watches_rows(name: str) -> bool:
    """Whether the policy that `policy.name` names watches the weights of rows."""
    return policy_class(name).see is not Policy.see


def takes_lanes(name: str) -> bool:
    """Whether batches are put together from lanes under the policy that `policy.name` names."""
    return keeps_order(name) or policy_class(name).orders_sections


def build_policy(config: PolicyConfig, facts: RunFacts) -> Policy:
    """The policy that the settings name.

    Raises:
        SettingError: as for `policy_class`.
    """
    kind = policy_class(config.name)
    facts = replace(facts, sharing=choose_sharing(facts.sharing, kind.sharings, facts.trainers).name)
    if facts.sharing not in kind.sharings:
        known = " or ".join(repr(sharing) for sharing in kind.sharings)
        raise SettingError("cache.sharing", facts.sharing, f"policy.name = {config.name!r} plans for {known} alone")
    if kind.has_micro_batches and facts.sharing != "replicated":
        cure = f"policy.name = {config.name!r} gives micro-batches, which compute with replicated rows alone"
        raise SettingError("cache.sharing", facts.sharing, cure)
    with POLICIES.blaming(config.name, "cannot be made"):
        return kind(config.settings, facts)
