//! The calls in a piece of code that install packages, as far as they are written out: of `micropip.install`, and of
//! functions that run pip as a process.
//!
//! Tokens are searched instead of the syntax tree: a search of the tree would recurse as deeply as the code nests.

use ruff_python_ast::token::{Token, TokenKind};

use super::imports::with_parsed;

/// The functions that run a command which is a string.
const PROCESS_FUNCTIONS: [&str; 8] =
    ["Popen", "call", "check_call", "check_output", "getoutput", "popen", "run", "system"];

/// A command that may install packages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipCall {
    /// A command as a list of its words, with `python` in place of `sys.executable`.
    Words(Vec<String>),
    /// A command for a shell.
    Shell(String),
    /// The requirements of a call of `micropip.install`.
    Micropip(Vec<String>),
}

/// Returns the commands in a source that are string literals or lists of them, and may install packages. A source with
/// a syntax error has none.
pub fn pip_calls(source: &str) -> Vec<PipCall> {
    if !source.contains("install") {
        return Vec::new();
    }
    let calls = with_parsed(source, |parsed| {
        let is_significant = |token: &&Token| {
            !matches!(token.kind(), TokenKind::Comment | TokenKind::Newline | TokenKind::NonLogicalNewline)
        };
        let text = |token: &Token| (token.kind(), source.get(token.as_tuple().1.to_std_range()).unwrap_or_default());
        let tokens: Vec<(TokenKind, &str)> = parsed.tokens().iter().filter(is_significant).map(text).collect();
        (0..tokens.len()).filter_map(|start| call_at(&tokens, start)).collect()
    });
    calls.unwrap_or_default()
}

/// Returns the command of which the token at `start` is the bracket that opens its list, or the arguments of its call.
fn call_at(tokens: &[(TokenKind, &str)], start: usize) -> Option<PipCall> {
    use TokenKind::{Comma, Dot, Lpar, Lsqb, Name, Rpar, Rsqb, String};
    let (before, rest) = tokens.split_at_checked(start)?;
    match (before, rest) {
        ([.., (Name, "micropip"), (Dot, _), (Name, "install")], [(Lpar, _), (String, text), (Comma | Rpar, _), ..]) => {
            Some(PipCall::Micropip(vec![literal(text)?.to_owned()]))
        }
        ([.., (Name, "micropip"), (Dot, _), (Name, "install")], [(Lpar, _), (Lsqb, _), list @ ..]) => {
            words(list, Rsqb).map(PipCall::Micropip)
        }
        ([.., (Name, name)], [(Lpar, _), (String, text), (Comma | Rpar, _), ..])
            if PROCESS_FUNCTIONS.contains(name) =>
        {
            Some(PipCall::Shell(literal(text)?.to_owned()))
        }
        (_, [(Lsqb, _), list @ ..]) => words(list, Rsqb).map(PipCall::Words),
        _ => None,
    }
}

/// Returns the strings of a list that ends with `end`, if it has nothing but string literals and `sys.executable`.
fn words(mut tokens: &[(TokenKind, &str)], end: TokenKind) -> Option<Vec<String>> {
    use TokenKind::{Comma, Dot, Name};
    let mut words = Vec::new();
    loop {
        tokens = match tokens {
            [(kind, _), ..] if *kind == end => return Some(words),
            [(TokenKind::String, text), rest @ ..] => {
                words.push(literal(text)?.to_owned());
                rest
            }
            [(Name, "sys"), (Dot, _), (Name, "executable"), rest @ ..] => {
                words.push("python".to_owned());
                rest
            }
            _ => return None,
        };
        tokens = match tokens {
            [(Comma, _), rest @ ..] => rest,
            [(kind, _), ..] if *kind == end => tokens,
            _ => return None,
        };
    }
}

/// Returns the value of a string literal without a prefix, escapes or line breaks.
fn literal(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    let value = text.strip_prefix(quote)?.strip_suffix(quote)?;
    (!value.contains(['\\', '\n', quote])).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::{PipCall, pip_calls};

    fn words(words: &[&str]) -> PipCall {
        PipCall::Words(words.iter().map(|word| (*word).to_owned()).collect())
    }

    #[test]
    fn commands_that_are_written_out_are_found() {
        let source = r#"
import subprocess, sys
subprocess.check_call([
    sys.executable, "-m", "pip",  # quietly
    "install", 'alpha', "beta>=1",
])
if x:
    command = ["pip", "install", "gamma"]
os.system("pip install delta")
print(subprocess.run('pip install epsilon', shell=True))
"#;
        let wanted = [
            words(&["python", "-m", "pip", "install", "alpha", "beta>=1"]),
            words(&["pip", "install", "gamma"]),
            PipCall::Shell("pip install delta".into()),
            PipCall::Shell("pip install epsilon".into()),
        ];
        assert_eq!(pip_calls(source), wanted);
    }

    #[test]
    fn requirements_of_micropip_are_found() {
        let source = "await micropip.install('alpha')\nmicropip.install(['beta', \"gamma\"], keep_going=True)\n";
        let wanted = [
            PipCall::Micropip(vec!["alpha".into()]),
            PipCall::Micropip(vec!["beta".into(), "gamma".into()]),
            words(&["beta", "gamma"]),
        ];
        assert_eq!(pip_calls(source), wanted);
    }

    #[test]
    fn commands_that_are_computed_are_not_found() {
        for source in [
            "run(['pip', 'install', name])",
            "run(['pip', 'install', 'al' + 'pha'])",
            "run(['pip', 'install', 'al' 'pha'])",
            "run(['pip', 'install', f'alpha'])",
            "run(['pip', 'install', r'alpha'])",
            "run(['pip', 'install', '\\x61lpha'])",
            "run(['pip', 'install', *names])",
            "run(['pip', 'install' 'alpha'",
            "run('pip install ' + name)",
            "run('''pip install alpha''')",
            "micropip.install(names)",
            "print('pip install alpha')",
            "# run('pip install alpha')",
            "x = \"run('pip install alpha')\"",
        ] {
            assert_eq!(pip_calls(source), [], "{source}");
        }
    }

    #[test]
    fn deeply_nested_source_is_searched() {
        let source = format!("x = {}1{}\nrun('pip install alpha')\n", "[".repeat(50_000), "]".repeat(50_000));
        assert_eq!(pip_calls(&source), [PipCall::Shell("pip install alpha".into())]);
    }
}
