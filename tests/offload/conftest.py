from tests.search_fixtures import compiled_search  # noqa: F401
