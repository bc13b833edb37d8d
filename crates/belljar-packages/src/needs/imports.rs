//! Which modules a piece of code imports, and which of them it can do without.
//!
//! `ruff_python_parser` parses: it takes the syntax of 3.14, IPython's `%` and `!` lines, and any depth of nesting.

use std::collections::BTreeMap;

use ruff_python_ast::{ExceptHandler, Expr, Mod, Stmt};
use ruff_python_parser::{Mode, ParseOptions, parse_unchecked};

/// Longest source that is looked at. Python itself takes longer ones, but nobody writes them.
const MAX_BYTES: usize = 512 << 10;
/// Of the thread that parses. A syntax tree is dropped recursively, and a source within the limit can nest half a
/// million operators. Only what is used of it becomes memory.
const STACK_BYTES: usize = 512 << 20;

/// A module's dotted name, and whether the code can do without it.
pub(super) type Imports = BTreeMap<String, Import>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Import {
    /// Every import of it stands where its failure is expected.
    pub(super) optional: bool,
    /// The name is that of something imported *from* a module: perhaps a module too, perhaps a function.
    pub(super) guess: bool,
}

/// The imports of a source at any depth. `None`: it does not parse, and Python will say why.
pub(super) fn of_source(source: &str) -> Option<Imports> {
    if source.len() > MAX_BYTES {
        tracing::debug!(bytes = source.len(), "the source is too long to look for imports");
        return None;
    }
    // Most code that needs nothing can be told by looking for the word.
    if !source.contains("import") {
        return Some(Imports::new());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || parse(source)).ok()?;
        thread.join().ok()?
    })
}

fn parse(source: &str) -> Option<Imports> {
    let parsed = parse_unchecked(source, ParseOptions::from(Mode::Ipython));
    if parsed.has_invalid_syntax() {
        return None;
    }
    let mut collector = Collector::default();
    if let Mod::Module(module) = parsed.syntax() {
        collector.suite(&module.body);
    }
    Some(collector.imports)
}

#[derive(Default)]
struct Collector {
    imports: Imports,
    /// How many statements around this one catch a failed import.
    caught: usize,
}

impl Collector {
    fn suite(&mut self, statements: &[Stmt]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    /// Imports are statements: expressions need not be looked into.
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
            Stmt::FunctionDef(function) => self.suite(&function.body),
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
                // What only type checkers read is not imported.
                if !is_named(&statement.test, "TYPE_CHECKING") {
                    self.suite(&statement.body);
                }
                for clause in &statement.elif_else_clauses {
                    self.suite(&clause.body);
                }
            }
            Stmt::With(statement) => {
                let caught = statement.items.iter().any(|item| is_suppressing(&item.context_expr));
                self.caught_if(caught, |collector| collector.suite(&statement.body));
            }
            Stmt::Match(statement) => {
                for case in &statement.cases {
                    self.suite(&case.body);
                }
            }
            Stmt::Try(statement) => {
                let ExceptHandlers { catches } = ExceptHandlers::of(&statement.handlers);
                self.caught_if(catches, |collector| collector.suite(&statement.body));
                // What stands in the place of a module that is missing may be missing too.
                self.caught_if(catches, |collector| {
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

    fn caught_if(&mut self, caught: bool, collect: impl FnOnce(&mut Self)) {
        self.caught += usize::from(caught);
        collect(self);
        self.caught -= usize::from(caught);
    }

    fn add(&mut self, module: &str, guess: bool) {
        let optional = self.caught > 0;
        self.imports
            .entry(module.to_owned())
            .and_modify(|import| {
                import.optional &= optional;
                import.guess &= guess;
            })
            .or_insert(Import { optional, guess });
    }
}

struct ExceptHandlers {
    /// Whether one of them takes a failed import.
    catches: bool,
}

impl ExceptHandlers {
    fn of(handlers: &[ExceptHandler]) -> Self {
        let catches = handlers.iter().any(|ExceptHandler::ExceptHandler(handler)| match handler.type_.as_deref() {
            None => true,
            Some(caught) => takes_import_error(caught),
        });
        ExceptHandlers { catches }
    }
}

/// Whether an expression names an exception, or a tuple with one, that a failed import is.
fn takes_import_error(expression: &Expr) -> bool {
    match expression {
        Expr::Tuple(tuple) => tuple.elts.iter().any(takes_import_error),
        other => ["ImportError", "ModuleNotFoundError", "Exception", "BaseException"]
            .iter()
            .any(|name| is_named(other, name)),
    }
}

/// `contextlib.suppress(ImportError)`.
fn is_suppressing(expression: &Expr) -> bool {
    match expression {
        Expr::Call(call) => is_named(&call.func, "suppress") && call.arguments.args.iter().any(takes_import_error),
        _ => false,
    }
}

/// `name` or `anything.name`.
fn is_named(expression: &Expr, name: &str) -> bool {
    match expression {
        Expr::Name(found) => found.id.as_str() == name,
        Expr::Attribute(attribute) => attribute.attr.as_str() == name,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::of_source;

    /// Names that are imported for certain: `name` or `name?` when optional.
    fn imports(source: &str) -> Vec<String> {
        let imports = of_source(source).unwrap();
        let certain = imports.into_iter().filter(|(_, import)| !import.guess);
        certain.map(|(name, import)| if import.optional { format!("{name}?") } else { name }).collect()
    }

    #[test]
    fn imports_at_any_depth_are_found_and_relative_ones_are_not() {
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
    fn imports_whose_failure_is_expected_are_optional() {
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
    fn what_is_imported_both_ways_is_needed() {
        assert_eq!(imports("try:\n    import a\nexcept ImportError:\n    a = None\nimport a\n"), ["a"]);
    }

    #[test]
    fn what_only_type_checkers_see_is_left_out() {
        assert_eq!(imports("if TYPE_CHECKING:\n    import a\nelse:\n    import b\n"), ["b"]);
        assert_eq!(imports("if typing.TYPE_CHECKING:\n    import a\n"), Vec::<String>::new());
    }

    #[test]
    fn new_syntax_and_lines_of_ipython_parse() {
        assert_eq!(imports("%pip install x\n!ls\nimport a\nprint(t'{a}')\n"), ["a"]);
        assert_eq!(
            imports("try:\n    import a\nexcept ImportError, OSError:\n    pass\ntype X[T: int = str] = T\n"),
            ["a?"]
        );
    }

    #[test]
    fn what_does_not_parse_has_no_imports() {
        assert!(of_source("import a\ndef (\n").is_none());
        assert!(of_source("import\n").is_none());
    }

    #[test]
    fn deep_nesting_is_survived() {
        let source = format!("import a\nx = {}1\n", "-".repeat(400_000));
        assert!(of_source(&source).is_some());
        let source = format!("import a\nx = {}1{}\n", "(".repeat(100_000), ")".repeat(100_000));
        assert!(of_source(&source).is_some());
        let source = format!("import a\nx = a{}\n", ".b".repeat(200_000));
        assert!(of_source(&source).is_some());
    }
}
