//! A list of a server, which its copies share with the cache.

use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A list of a server: its tools, resources, templates or prompts. A copy shares the entries, and so does the cache of
/// the session: listing again copies nothing until the list changes.
///
/// It is a slice. Iterating over a reference borrows the entries; iterating over the list itself copies those that the
/// cache still needs.
///
/// ```no_run
/// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
/// use belljar_mcp_client::SharedList;
/// use belljar_mcp_client::protocol::Tool;
///
/// let tools: SharedList<Tool> = server.list_tools().await?;
/// for tool in &tools {
///     println!("{}", tool.name);
/// }
/// println!("{} tools, the first is {:?}", tools.len(), tools.first().map(|tool| &tool.name));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedList<T>(Arc<Vec<T>>);

impl<T> SharedList<T> {
    /// Returns whether both are copies of one list, which is then unchanged.
    ///
    /// ```no_run
    /// # async fn run(server: belljar_mcp_client::McpServer) -> Result<(), belljar_mcp_client::McpError> {
    /// let running = server.connect().await?;
    /// let (first, second) = (server.list_tools().await?, server.list_tools().await?);
    /// println!("from the cache: {}", first.is_same(&second));
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Clone for SharedList<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: PartialEq> PartialEq for SharedList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Deref for SharedList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> From<Arc<Vec<T>>> for SharedList<T> {
    fn from(entries: Arc<Vec<T>>) -> Self {
        Self(entries)
    }
}

impl<T> From<Vec<T>> for SharedList<T> {
    fn from(entries: Vec<T>) -> Self {
        Self(Arc::new(entries))
    }
}

impl<T: Clone> From<SharedList<T>> for Vec<T> {
    fn from(list: SharedList<T>) -> Self {
        Arc::unwrap_or_clone(list.0)
    }
}

impl<'a, T> IntoIterator for &'a SharedList<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<T: Clone> IntoIterator for SharedList<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        Vec::from(self).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::SharedList;

    #[test]
    fn copies_share_their_entries() {
        let list = SharedList::from(vec!["a".to_owned(), "b".to_owned()]);
        let copy = list.clone();
        assert!(list.is_same(&copy) && !list.is_same(&SharedList::from(list.to_vec())));
        assert_eq!((&copy).into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(copy.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"["a","b"]"#);
        assert_eq!(serde_json::from_str::<SharedList<String>>(r#"["a","b"]"#).unwrap(), list);
    }
}
