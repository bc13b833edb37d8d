//! Secrets as command lines give them: `NAME@HOST,HOST=env:VARIABLE` or `NAME@HOST=file:PATH`.

use super::{SecretError, Secrets};

/// The most bytes of a text that an error repeats.
const MAX_SHOWN: usize = 100;

/// The place of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretSource<'a> {
    /// A variable of the environment.
    Variable(&'a str),
    /// A file.
    File(&'a str),
}

impl Secrets {
    /// Adds a secret from a text of the form `GITHUB_TOKEN@api.github.com=env:GITHUB_TOKEN`. The caller reads the
    /// value. A line end after it is removed.
    ///
    /// # Errors
    /// Returns an error if the text has another form, the caller fails to read the value, or [`Secrets::add`] refuses
    /// it.
    pub fn add_specification(
        &mut self,
        text: &str,
        read: impl FnOnce(SecretSource<'_>) -> Result<String, String>,
    ) -> Result<(), SecretError> {
        // A text of another form may contain a value: no more than its name is shown.
        let shown = || text.split(['=', '@']).next().unwrap_or_default().chars().take(MAX_SHOWN).collect::<String>();
        let form = || SecretError::Form(shown());
        let (target, source) = text.split_once('=').ok_or_else(form)?;
        let (name, hosts) = target.split_once('@').ok_or_else(form)?;
        let source = match source.split_once(':') {
            Some(("env", variable)) if !variable.is_empty() => SecretSource::Variable(variable),
            Some(("file", path)) if !path.is_empty() => SecretSource::File(path),
            _ => return Err(form()),
        };
        let value = read(source).map_err(|reason| SecretError::Source { name: shown(), reason })?;
        let value = value.strip_suffix('\n').unwrap_or(&value);
        let value = value.strip_suffix('\r').unwrap_or(value);
        let hosts: Vec<&str> = hosts.split(',').collect();
        self.add(name, &hosts, value.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(source: SecretSource<'_>) -> Result<String, String> {
        match source {
            SecretSource::Variable("TOKEN") => Ok("value-of-the-variable".to_owned()),
            SecretSource::File("/a=b:c") => Ok("value-of-the-file\r\n".to_owned()),
            _ => Err("it does not exist".to_owned()),
        }
    }

    #[test]
    fn values_are_read_from_their_source() {
        let mut secrets = Secrets::new();
        secrets.add_specification("A@a.example,b.example:8443=env:TOKEN", read).unwrap();
        secrets.add_specification("B@*.example=file:/a=b:c", read).unwrap();
        assert_eq!(secrets.environment().map(|(name, _)| name).collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!(
            secrets.scrubber().scrub_text("value-of-the-file value-of-the-variable"),
            "*".repeat(17) + " " + &"*".repeat(21)
        );
    }

    #[test]
    fn other_forms_are_errors_that_show_no_value() {
        let mut secrets = Secrets::new();
        for text in
            ["A", "A=secret-value", "A@a.example", "A@a.example=secret-value", "A@a.example=env:", "secret-value=env:X"]
        {
            let error = secrets.add_specification(text, read).unwrap_err().to_string();
            assert!(!error.contains("secret-value") || text.starts_with("secret"), "{error}");
        }
        let error = secrets.add_specification("A@a.example=env:OTHER", read).unwrap_err();
        assert_eq!(error.to_string(), "failed to read the secret A: it does not exist");
        assert!(secrets.is_empty());
    }
}
