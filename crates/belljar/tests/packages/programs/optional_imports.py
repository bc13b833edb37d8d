try:
    import a_package_that_nobody_ever_published
except ImportError:
    a_package_that_nobody_ever_published = None
import tomllib

assert a_package_that_nobody_ever_published is None
