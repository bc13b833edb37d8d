"""The names of types, exceptions and functions that a Monty client knows: an unknown name ends its connection.

Found by sending each name to pydantic-monty 1.0 to 1.4. The version of the client is in its first request.
"""

_EXCEPTIONS = frozenset(
    """
    ArithmeticError AssertionError AttributeError BaseException Exception FileExistsError FileNotFoundError
    FrozenInstanceError ImportError IndexError IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError
    ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError OverflowError PermissionError
    RecursionError RuntimeError StopIteration SyntaxError SystemExit TimeoutError TypeError UnboundLocalError
    UnicodeDecodeError UnicodeEncodeError ValueError ZeroDivisionError binascii.Error binascii.Incomplete
    io.UnsupportedOperation json.JSONDecodeError re.PatternError
    """.split()
)
_EXCEPTIONS_OF_1_2 = frozenset(["_csv.Error", "tomllib.TOMLDecodeError"])
_EXCEPTIONS_OF_1_4 = frozenset(
    """
    decimal.Clamped decimal.ConversionSyntax decimal.DecimalException decimal.DivisionByZero
    decimal.DivisionImpossible decimal.DivisionUndefined decimal.FloatOperation decimal.Inexact
    decimal.InvalidContext decimal.InvalidOperation decimal.Overflow decimal.Rounded decimal.Subnormal
    decimal.Underflow
    """.split()
)
_TYPES = frozenset(
    """
    Field NoneType NotImplementedType PosixPath bool builtin_function_or_method bytes bytes_iterator
    callable_iterator cell collections.deque coroutine datetime.date datetime.datetime datetime.time
    datetime.timedelta datetime.timezone dict dict_itemiterator dict_items dict_keyiterator dict_keys
    dict_valueiterator dict_values ellipsis float frozenset function functools.partial int iterator
    itertools.accumulate itertools.batched itertools.chain itertools.combinations
    itertools.combinations_with_replacement itertools.compress itertools.count itertools.cycle itertools.dropwhile
    itertools.filterfalse itertools.groupby itertools.islice itertools.pairwise itertools.permutations
    itertools.product itertools.repeat itertools.starmap itertools.takewhile itertools.zip_longest list
    list_iterator module namedtuple object property range range_iterator re.Match re.Pattern set set_iterator slice
    str str_ascii_iterator str_iterator tuple tuple_iterator type types.GenericAlias typing.Union
    """.split()
)
FUNCTIONS = frozenset(
    """
    abs all any bin chr divmod enumerate eval exec filter format getattr hasattr hash hex id isinstance len locals
    map max min next oct open ord pow print repr reversed round setattr sorted sum type zip
    """.split()
)
"""The builtin functions."""

exceptions = _EXCEPTIONS
"""The classes of exceptions that the client knows."""
types = _TYPES
"""The types that it knows."""
has_decimals = False
"""True if it knows decimal numbers."""


def choose(client: list[int]) -> None:
    """Sets the names to those of a client, by the first two parts of its version."""
    global exceptions, types, has_decimals
    has_decimals = client >= [1, 4]
    exceptions = _EXCEPTIONS | (_EXCEPTIONS_OF_1_2 if client >= [1, 2] else frozenset())
    types = _TYPES | (frozenset(["complex"]) if client >= [1, 1] else frozenset())
    if has_decimals:
        exceptions |= _EXCEPTIONS_OF_1_4
        types |= {"decimal.Decimal"}
