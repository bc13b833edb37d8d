//! Names that code must not use: metaphors and past participles whose standard terms docs/glossary.md gives.

/// Words that no identifier contains, in whatever case: `NurseryReply` and `open_nursery` are both refused.
const WORDS: [&str; 12] = [
    "nursery",
    "cradle",
    "unborn",
    "patience",
    "whoever",
    "nobody",
    "workplace",
    "burial",
    "anew",
    "heard",
    "told",
    "leavings",
];

/// Whole identifiers. Some of these words are fine as a part of a longer name, or in another case.
const NAMES: [&str; 34] = [
    "Answered",
    "Asked",
    "Begun",
    "Born",
    "Deed",
    "Dice",
    "Ears",
    "Ended",
    "Entered",
    "GRACE",
    "Ground",
    "Hearing",
    "Held",
    "Kept",
    "LAST_WORDS",
    "LOOK",
    "Launched",
    "Lent",
    "Life",
    "Lives",
    "Listed",
    "MOST",
    "Mapped",
    "Places",
    "Queued",
    "Raised",
    "Said",
    "Sealed",
    "Shop",
    "Shown",
    "Silent",
    "Taken",
    "Teller",
    "Wanted",
];

/// Beginnings of constants that have a standard form: `MAX_`.
const PREFIXES: [&str; 1] = ["MOST_"];

/// Returns whether code must not use this identifier.
pub(super) fn is_denied(identifier: &str) -> bool {
    NAMES.contains(&identifier)
        || PREFIXES.iter().any(|prefix| identifier.starts_with(prefix))
        || words(identifier).iter().any(|word| WORDS.contains(&word.as_str()))
}

/// Splits `NurseryReply`, `nursery_reply` or `NURSERY_REPLY` into lower-case words.
fn words(identifier: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut previous = None;
    for c in identifier.chars() {
        let breaks = c == '_' || (c.is_uppercase() && previous.is_some_and(char::is_lowercase));
        if breaks {
            words.push(String::new());
        }
        if c != '_'
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
        previous = Some(c);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_words_are_found_within_names() {
        assert!(
            ["Nursery", "NurseryReply", "open_nursery", "PATIENCE", "READ_PATIENCE", "Heard", "told_to_end"]
                .iter()
                .all(|name| is_denied(name))
        );
        assert!(is_denied("Said") && is_denied("MOST_FOLDERS") && is_denied("GRACE"));
    }

    #[test]
    fn other_names_are_not() {
        for name in ["silent", "X_GRACE", "almost", "SHUTDOWN_GRACE", "said", "Cradled", "overheard", "Silently"] {
            assert!(!is_denied(name), "{name}");
        }
    }
}
