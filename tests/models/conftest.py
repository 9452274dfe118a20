"""The models of the zoo run PyTorch."""

from tests.torch_fixtures import forgotten_code, one_thread, quick_collection, settings_of_torch  # noqa: F401
