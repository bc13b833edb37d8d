//! Linux: Jupyter's data directory.

use std::path::PathBuf;

pub(crate) use super::unix::is_socket;

/// Returns the data directory of a user, where `variable` returns the value of a variable of the environment.
pub(crate) fn default_data(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")))?;
    Some(data.join("jupyter"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn data_directory_is_that_of_the_xdg_specification() {
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/home/ada"));
        assert_eq!(default_data(home).as_deref(), Some(Path::new("/home/ada/.local/share/jupyter")));
        let both = |name: &str| Some(Path::new("/").join(name));
        assert_eq!(default_data(both).as_deref(), Some(Path::new("/XDG_DATA_HOME/jupyter")));
        assert_eq!(default_data(|_| None), None);
    }
}
