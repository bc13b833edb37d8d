//! `cargo xtask style`: counts the patterns of speech that this project avoids, and fails above their limits. It also
//! fails for names and for conditions on the platform that code must not have.
//!
//! The text that is read:
//! - `//`, `///`, `//!` and `/* */` comments of every tracked `.rs` file,
//! - comments and docstrings of every tracked `.py` file,
//! - every tracked `.md` file.
//!
//! Code is not prose: fenced blocks are left out, and the text of code spans (`` `…` ``) and of link targets counts as
//! words but matches no pattern. A quotation that needs an avoided word goes into a code span or a fence.
//!
//! [`patterns`] defines the patterns and their limits, [`prose`] the text, [`identifiers`] the names that code must not
//! use, [`platforms`] the places of conditions on the platform, and [`count`] puts them together. On commit 1f0ae9d the
//! definitions give the numbers that the limits were set against, within a few per cent; `whoever` is counted in both
//! cases here, and was counted in lower case there.

mod count;
mod cursor;
mod files;
mod identifiers;
mod markdown;
mod patterns;
mod platforms;
mod prose;
mod python;
mod report;
mod rust;
mod source;

const USAGE: &str = "\
Usage: cargo xtask style [-v | --list] [--markdown] [PATH…]

Counts avoided patterns of speech per 10,000 words of comments and docs, in all tracked files or in those below PATH.
Lists avoided names, lines of prose that are too wide, and conditions on the platform that are not in their place.

Options:
  -v, --list      list every hit as `path:line: text`
      --markdown  print the table for CONTRIBUTING.md
  -h, --help      print this help";

/// Runs the chore. Returns whether every count is within its limit.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let mut list = false;
    let mut markdown = false;
    let mut paths = Vec::new();
    for argument in arguments {
        match argument.as_str() {
            "-v" | "--list" => list = true,
            "--markdown" => markdown = true,
            "-h" | "--help" => {
                println!("{USAGE}");
                return Ok(true);
            }
            option if option.starts_with('-') => return Err(format!("unknown option {option}\n\n{USAGE}")),
            _ => paths.push(argument),
        }
    }
    let counts = count::count(&files::read(&paths)?);
    if list {
        print!("{}", report::hits(&counts));
    }
    if markdown {
        print!("{}", report::markdown(&counts));
    } else {
        print!("{}", report::table(&counts));
        let failures = report::failures(&counts);
        if !list && !failures.is_empty() {
            print!("\n{failures}");
        }
    }
    Ok(counts.rows().iter().all(|row| row.passes()))
}
