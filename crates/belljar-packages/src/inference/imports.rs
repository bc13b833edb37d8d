//! The modules that a piece of code imports, and whether the imports are optional.
//!
//! Parsing is done by `ruff_python_parser`, which accepts the syntax of Python 3.14, IPython's `%` and `!` lines, and
//! any depth of nesting.

use std::collections::{BTreeMap, BTreeSet};

use ruff_python_ast::token::TokenKind;
use ruff_python_ast::{ExceptHandler, Expr, Mod, Stmt};
use ruff_python_parser::lexer::lex;
use ruff_python_parser::{Mode, ParseOptions, Parsed, parse_unchecked};

/// The maximum length of a source. Python itself accepts longer ones, but they do not occur in practice.
const MAX_BYTES: usize = 512 << 10;
/// The stack size of the parsing thread. A syntax tree is dropped recursively, and a source within the limit can nest
/// half a million operators. Pages of the stack that are not used take no memory.
const STACK_BYTES: usize = 512 << 20;
/// The maximum depth of f-strings and braces. CPython refuses 200 parentheses and 150 f-strings within each other.
const MAX_STRING_DEPTH: usize = 400;
/// The length of a source up to which that depth is not checked: parsing takes tenths of a second at most.
const UNCHECKED_BYTES: usize = 16 << 10;

/// The imports of a source, by the module's dotted name.
pub(super) type Imports = BTreeMap<String, Import>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Import {
    /// True if every import of the module is in a place where `ImportError` is caught.
    pub(super) optional: bool,
    /// True if the name was imported *from* a module, so that it may be an attribute rather than a module.
    pub(super) may_be_attribute: bool,
}

/// The imports of a source, with those that are relative to its package.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct AllImports {
    pub(super) absolute: Imports,
    /// The number of leading dots, and the dotted name after them. A name that is imported from a module is included,
    /// as if it were a module.
    pub(super) relative: BTreeSet<(u32, String)>,
}

/// The imports of a source that are returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImportScope {
    /// Those at any depth.
    All,
    /// Those that run when the module itself is imported: outside of functions. If the module resolves attributes on
    /// first use (`__getattr__`, PEP 562), the imports for type checkers are included: they list these attributes.
    Module,
}

/// Returns the absolute imports of a source at any depth, or `None` if the source has a syntax error, which Python will
/// report.
pub(super) fn from_source(source: &str) -> Option<Imports> {
    Some(all_from_source(source, ImportScope::All)?.absolute)
}

/// Does the same as [`from_source`], and returns the relative imports too.
pub(super) fn all_from_source(source: &str, scope: ImportScope) -> Option<AllImports> {
    // Searching for the word is enough to recognise most code without imports.
    if !source.contains("import") {
        return Some(AllImports::default());
    }
    with_parsed(source, |parsed| imports_of(parsed.syntax(), scope))
}

/// Parses a source, and calls `search` on a thread with a large stack. Returns `None` if the source is too long or has
/// a syntax error.
pub(super) fn with_parsed<T: Send>(source: &str, search: impl FnOnce(&Parsed<Mod>) -> T + Send) -> Option<T> {
    if source.len() > MAX_BYTES {
        tracing::debug!(bytes = source.len(), "the source is too long to be searched");
        return None;
    }
    // Parsing would take minutes, since the parser copies its list of open strings at each token.
    if source.len() > UNCHECKED_BYTES && nests_strings_too_deeply(source) {
        return None;
    }
    let parse_and_search = || {
        let parsed = parse_unchecked(source, ParseOptions::from(Mode::Ipython));
        (!parsed.has_invalid_syntax()).then(|| search(&parsed))
    };
    std::thread::scope(|threads| {
        let thread =
            std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(threads, parse_and_search).ok()?;
        thread.join().ok()?
    })
}

/// Returns whether f-strings and braces are nested deeper than in any valid source.
fn nests_strings_too_deeply(source: &str) -> bool {
    let (mut lexer, mut depth) = (lex(source, Mode::Ipython), 0_usize);
    loop {
        match lexer.next_token() {
            TokenKind::FStringStart | TokenKind::TStringStart | TokenKind::Lbrace => depth += 1,
            TokenKind::FStringEnd | TokenKind::TStringEnd | TokenKind::Rbrace => depth = depth.saturating_sub(1),
            TokenKind::EndOfFile => return false,
            _ => {}
        }
        if depth > MAX_STRING_DEPTH {
            return true;
        }
    }
}

fn imports_of(syntax: &Mod, scope: ImportScope) -> AllImports {
    let is_all = scope == ImportScope::All;
    let mut collector = Collector { in_functions: is_all, ..Collector::default() };
    if let Mod::Module(module) = syntax {
        collector.for_type_checkers = !is_all && module.body.iter().any(is_attribute_hook);
        collector.suite(&module.body);
    }
    collector.imports
}

#[derive(Default)]
struct Collector {
    imports: AllImports,
    /// Set if the bodies of functions are searched.
    in_functions: bool,
    /// Set if imports for type checkers are collected.
    for_type_checkers: bool,
    /// The number of enclosing statements that catch `ImportError`.
    catching_depth: usize,
}

impl Collector {
    fn suite(&mut self, statements: &[Stmt]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    /// Collects the imports of a statement. Imports are statements, so expressions are not searched.
    fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Import(import) => {
                for alias in &import.names {
                    self.add(alias.name.as_str(), false);
                }
            }
            Stmt::ImportFrom(import) if import.level == 0 => {
                let Some(module) = &import.module else { return };
                self.add(module.as_str(), false);
                for alias in import.names.iter().filter(|alias| alias.name.as_str() != "*") {
                    self.add(&format!("{module}.{}", alias.name), true);
                }
            }
            Stmt::ImportFrom(import) => {
                let module = import.module.as_ref().map_or("", |module| module.as_str());
                self.imports.relative.insert((import.level, module.to_owned()));
                for alias in import.names.iter().filter(|alias| alias.name.as_str() != "*") {
                    let name = format!("{module}.{}", alias.name);
                    self.imports.relative.insert((import.level, name.trim_start_matches('.').to_owned()));
                }
            }
            Stmt::FunctionDef(function) if self.in_functions => self.suite(&function.body),
            Stmt::ClassDef(class) => self.suite(&class.body),
            Stmt::For(statement) => {
                self.suite(&statement.body);
                self.suite(&statement.orelse);
            }
            Stmt::While(statement) => {
                self.suite(&statement.body);
                self.suite(&statement.orelse);
            }
            Stmt::If(statement) => {
                // The body is for type checkers and is not executed.
                if self.for_type_checkers || !is_named(&statement.test, "TYPE_CHECKING") {
                    self.suite(&statement.body);
                }
                for clause in &statement.elif_else_clauses {
                    self.suite(&clause.body);
                }
            }
            Stmt::With(statement) => {
                let catches = statement.items.iter().any(|item| suppresses_import_error(&item.context_expr));
                self.catching_if(catches, |collector| collector.suite(&statement.body));
            }
            Stmt::Match(statement) => {
                for case in &statement.cases {
                    self.suite(&case.body);
                }
            }
            Stmt::Try(statement) => {
                let catches = statement.handlers.iter().any(catches_import_error);
                self.catching_if(catches, |collector| collector.suite(&statement.body));
                // An alternative to a missing module may be missing too.
                self.catching_if(catches, |collector| {
                    for ExceptHandler::ExceptHandler(handler) in &statement.handlers {
                        collector.suite(&handler.body);
                    }
                });
                self.suite(&statement.orelse);
                self.suite(&statement.finalbody);
            }
            _ => {}
        }
    }

    /// Calls `collect` as inside a statement that catches `ImportError`, if `catches` is true.
    fn catching_if(&mut self, catches: bool, collect: impl FnOnce(&mut Self)) {
        self.catching_depth += usize::from(catches);
        collect(self);
        self.catching_depth -= usize::from(catches);
    }

    fn add(&mut self, module: &str, may_be_attribute: bool) {
        let optional = self.catching_depth > 0;
        self.imports
            .absolute
            .entry(module.to_owned())
            .and_modify(|import| {
                import.optional &= optional;
                import.may_be_attribute &= may_be_attribute;
            })
            .or_insert(Import { optional, may_be_attribute });
    }
}

/// Returns whether a statement defines the `__getattr__` of a module.
fn is_attribute_hook(statement: &Stmt) -> bool {
    matches!(statement, Stmt::FunctionDef(function) if function.name.as_str() == "__getattr__")
}

/// Returns whether an `except` clause catches a failed import.
fn catches_import_error(ExceptHandler::ExceptHandler(handler): &ExceptHandler) -> bool {
    handler.type_.as_deref().is_none_or(includes_import_error)
}

/// Returns whether an expression is a class of a failed import's exception, or a tuple that contains one.
fn includes_import_error(expression: &Expr) -> bool {
    match expression {
        Expr::Tuple(tuple) => tuple.elts.iter().any(includes_import_error),
        other => ["ImportError", "ModuleNotFoundError", "Exception", "BaseException"]
            .iter()
            .any(|name| is_named(other, name)),
    }
}

/// Returns whether an expression is `contextlib.suppress(ImportError)`.
fn suppresses_import_error(expression: &Expr) -> bool {
    match expression {
        Expr::Call(call) => is_named(&call.func, "suppress") && call.arguments.args.iter().any(includes_import_error),
        _ => false,
    }
}

/// Returns whether an expression is `name` or `anything.name`.
fn is_named(expression: &Expr, name: &str) -> bool {
    match expression {
        Expr::Name(found) => found.id.as_str() == name,
        Expr::Attribute(attribute) => attribute.attr.as_str() == name,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{ImportScope, UNCHECKED_BYTES, all_from_source, from_source};

    /// Returns the names of imported modules, with the suffix `?` if the import is optional.
    fn imports(source: &str) -> Vec<String> {
        let imports = from_source(source).unwrap();
        let modules = imports.into_iter().filter(|(_, import)| !import.may_be_attribute);
        modules.map(|(name, import)| if import.optional { format!("{name}?") } else { name }).collect()
    }

    #[test]
    fn absolute_imports_are_found_at_any_depth() {
        let source = "
import a, b.c as d
from e.f import g
from . import h
from .i import j
class K:
    def m(self):
        while True:
            if x: import n
            else: import o
        for p in q:
            with r: import s
match t:
    case 1: import u
async def v():
    import w
";
        assert_eq!(imports(source), ["a", "b.c", "e.f", "n", "o", "s", "u", "w"]);
    }

    #[test]
    fn relative_imports_are_found_with_their_level() {
        let source = "from . import a\nfrom .b.c import d\nfrom .. import *\ndef f():\n    from ...e import f\n";
        let relative: Vec<_> = all_from_source(source, ImportScope::All).unwrap().relative.into_iter().collect();
        let wanted = [(1, ""), (1, "a"), (1, "b.c"), (1, "b.c.d"), (2, ""), (3, "e"), (3, "e.f")];
        assert_eq!(relative, wanted.map(|(level, name)| (level, name.to_owned())));
        assert_eq!(imports(source), Vec::<String>::new());
    }

    #[test]
    fn imports_whose_failure_is_caught_are_optional() {
        for handler in [
            "ImportError",
            "ModuleNotFoundError",
            "Exception",
            "(ValueError, ImportError)",
            "builtins.ImportError",
            "ImportError as e",
        ] {
            let source = format!("try:\n    import a\nexcept {handler}:\n    import b\nelse:\n    import c\n");
            assert_eq!(imports(&source), ["a?", "b?", "c"], "{handler}");
        }
        assert_eq!(imports("try:\n    import a\nexcept:\n    pass\n"), ["a?"]);
        assert_eq!(imports("try:\n    import a\nexcept ImportError, ValueError:\n    pass\n"), ["a?"]);
        assert_eq!(imports("try:\n    import a\nexcept ValueError:\n    pass\n"), ["a"]);
        assert_eq!(imports("try:\n    import a\nfinally:\n    pass\n"), ["a"]);
        assert_eq!(imports("with contextlib.suppress(ImportError):\n    import a\n"), ["a?"]);
    }

    #[test]
    fn module_with_one_required_import_is_required() {
        assert_eq!(imports("try:\n    import a\nexcept ImportError:\n    a = None\nimport a\n"), ["a"]);
    }

    #[test]
    fn imports_for_type_checkers_are_ignored() {
        assert_eq!(imports("if TYPE_CHECKING:\n    import a\nelse:\n    import b\n"), ["b"]);
        assert_eq!(imports("if typing.TYPE_CHECKING:\n    import a\n"), Vec::<String>::new());
    }

    #[test]
    fn imports_of_functions_do_not_run_with_the_module() {
        let imports = |source| {
            let found = all_from_source(source, ImportScope::Module).unwrap().absolute;
            found.into_keys().collect::<Vec<_>>()
        };
        let source = "if TYPE_CHECKING:\n    import a\ntry:\n    import b\nexcept ImportError:\n    import c\n\
                      class C:\n    import d\n    def m(self):\n        import e\n";
        assert_eq!(imports(source), ["b", "c", "d"]);
        assert_eq!(imports(&format!("{source}def __getattr__(name):\n    import f\n")), ["a", "b", "c", "d"]);
    }

    #[test]
    fn new_syntax_and_ipython_lines_are_parsed() {
        assert_eq!(imports("%pip install x\n!ls\nimport a\nprint(t'{a}')\n"), ["a"]);
        assert_eq!(
            imports("try:\n    import a\nexcept ImportError, OSError:\n    pass\ntype X[T: int = str] = T\n"),
            ["a?"]
        );
    }

    #[test]
    fn source_with_a_syntax_error_has_no_imports() {
        assert!(from_source("import a\ndef (\n").is_none());
        assert!(from_source("import\n").is_none());
    }

    #[test]
    fn strings_that_are_nested_too_deeply_are_not_parsed() {
        let source = |open: &str, close: &str, depth: usize, rest: &str| {
            format!("import a\nx = {}1{}\n{rest}", open.repeat(depth), close.repeat(depth))
        };
        let rest = "y = {1: {2: f\"{3:{4}} {{\"}}\n".repeat(1000);
        assert!(rest.len() > UNCHECKED_BYTES);
        assert!(from_source(&source("f\"{", "}\"", 140, &rest)).is_some());
        // Each took more than a minute.
        assert!(from_source(&source("f\"{", "}\"", 100_000, "")).is_none());
        let specifications = format!("import a\nx = f\"{}{}\"\n", "{1:".repeat(100_000), "}".repeat(100_000));
        assert!(from_source(&specifications).is_none());
    }

    #[test]
    fn deeply_nested_source_is_parsed() {
        let source = format!("import a\nx = {}1\n", "-".repeat(400_000));
        assert!(from_source(&source).is_some());
        let source = format!("import a\nx = {}1{}\n", "(".repeat(100_000), ")".repeat(100_000));
        assert!(from_source(&source).is_some());
        let source = format!("import a\nx = a{}\n", ".b".repeat(200_000));
        assert!(from_source(&source).is_some());
    }
}
