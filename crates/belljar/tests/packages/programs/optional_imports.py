try:
    import a_package_that_was_never_published
except ImportError:
    a_package_that_was_never_published = None
import tomllib

assert a_package_that_was_never_published is None
