"""A model without a network, and checks of the providers' rules, for your own tests."""

from recollect.testing.provider_rules import violations
from recollect.testing.scripted_model import Fails, Says, ScriptedModel, UnexpectedCall

__all__ = ["Fails", "Says", "ScriptedModel", "UnexpectedCall", "violations"]
