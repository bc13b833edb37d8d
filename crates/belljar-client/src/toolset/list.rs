//! A list of tool definitions that is cheap to copy and to search.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ToolDefinition;

/// The tools of a toolset. A copy shares the definitions; a toolset whose tools did not change returns the same list
/// again, see [`is_same`](Self::is_same).
///
/// ```
/// use belljar_mcp_client::{ToolDefinition, ToolList};
/// use serde_json::json;
///
/// let tools = ToolList::from(vec![ToolDefinition::new("now", json!({"type": "object"}))]);
/// assert_eq!(tools[0].name, "now");
/// assert!(tools.get("now").is_some() && tools.get("then").is_none());
/// ```
#[derive(Clone, Default)]
pub struct ToolList(Arc<Tools>);

#[derive(Default)]
struct Tools {
    tools: Vec<Arc<ToolDefinition>>,
    /// The position of the first tool of each name, built when it is first needed.
    positions: OnceLock<HashMap<String, usize>>,
}

impl ToolList {
    /// Creates an empty list.
    ///
    /// ```
    /// assert!(belljar_mcp_client::ToolList::new().is_empty());
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the tool of this name.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolList;
    /// assert!(ToolList::new().get("now").is_none());
    /// ```
    pub fn get(&self, name: &str) -> Option<&Arc<ToolDefinition>> {
        let positions = self.0.positions.get_or_init(|| {
            let mut positions = HashMap::with_capacity(self.0.tools.len());
            for (position, tool) in self.0.tools.iter().enumerate() {
                positions.entry(tool.name.clone()).or_insert(position);
            }
            positions
        });
        self.0.tools.get(*positions.get(name)?)
    }

    /// Returns the tool at this position.
    pub(crate) fn get_at(&self, position: usize) -> Option<Arc<ToolDefinition>> {
        self.0.tools.get(position).cloned()
    }

    /// Returns the names of the tools, in order.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolList;
    /// assert_eq!(ToolList::new().names().count(), 0);
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.tools.iter().map(|tool| &*tool.name)
    }

    /// Returns whether both are copies of one list, which is then unchanged.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolList;
    /// let tools = ToolList::new();
    /// assert!(tools.is_same(&tools.clone()));
    /// assert!(!tools.is_same(&ToolList::new()));
    /// ```
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the definitions as values that can be changed.
    ///
    /// ```
    /// # use belljar_mcp_client::ToolList;
    /// assert_eq!(ToolList::new().to_definitions(), []);
    /// ```
    pub fn to_definitions(&self) -> Vec<ToolDefinition> {
        self.0.tools.iter().map(|tool| (**tool).clone()).collect()
    }
}

impl std::ops::Deref for ToolList {
    type Target = [Arc<ToolDefinition>];

    fn deref(&self) -> &Self::Target {
        &self.0.tools
    }
}

impl From<Vec<ToolDefinition>> for ToolList {
    fn from(tools: Vec<ToolDefinition>) -> Self {
        tools.into_iter().collect()
    }
}

impl FromIterator<ToolDefinition> for ToolList {
    fn from_iter<I: IntoIterator<Item = ToolDefinition>>(tools: I) -> Self {
        tools.into_iter().map(Arc::new).collect()
    }
}

impl FromIterator<Arc<ToolDefinition>> for ToolList {
    fn from_iter<I: IntoIterator<Item = Arc<ToolDefinition>>>(tools: I) -> Self {
        Self(Arc::new(Tools { tools: tools.into_iter().collect(), positions: OnceLock::new() }))
    }
}

impl<'a> IntoIterator for &'a ToolList {
    type Item = &'a Arc<ToolDefinition>;
    type IntoIter = std::slice::Iter<'a, Arc<ToolDefinition>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.tools.iter()
    }
}

/// In JSON, the definitions in order.
impl Serialize for ToolList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0.tools)
    }
}

impl<'de> Deserialize<'de> for ToolList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<ToolDefinition>::deserialize(deserializer).map(Self::from)
    }
}

impl PartialEq for ToolList {
    fn eq(&self, other: &Self) -> bool {
        self.0.tools == other.0.tools
    }
}

impl std::fmt::Debug for ToolList {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.names()).finish()
    }
}

/// The list that a wrapper made from its inner toolset's list, kept until the inner list changes.
#[derive(Debug, Default)]
pub(super) struct DerivedList(parking_lot::Mutex<Option<(ToolList, ToolList)>>);

impl DerivedList {
    /// Returns the list made from `inner`: the same one as before if `inner` is the same.
    pub(super) fn of<E>(
        &self,
        inner: ToolList,
        derive: impl FnOnce(&ToolList) -> Result<ToolList, E>,
    ) -> Result<ToolList, E> {
        if let Some((_, derived)) = self.0.lock().as_ref().filter(|(last, _)| last.is_same(&inner)) {
            return Ok(derived.clone());
        }
        let derived = derive(&inner)?;
        *self.0.lock() = Some((inner, derived.clone()));
        Ok(derived)
    }

    /// Returns these tools as a list: the last one of [`of`](Self::of) or of this method if it has the same tools.
    pub(super) fn reuse(&self, tools: Vec<Arc<ToolDefinition>>) -> ToolList {
        let mut last = self.0.lock();
        if let Some((_, list)) = &*last
            && list.len() == tools.len()
            && list.iter().zip(&tools).all(|(one, other)| Arc::ptr_eq(one, other))
        {
            return list.clone();
        }
        let list: ToolList = tools.into_iter().collect();
        *last = Some((ToolList::new(), list.clone()));
        list
    }
}

impl Clone for DerivedList {
    /// Creates an empty cache: it is filled again with the first use.
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(names: &[&str]) -> ToolList {
        names.iter().map(|name| ToolDefinition::new(*name, json!({"type": "object"}))).collect()
    }

    #[test]
    fn first_tool_of_a_name_is_found() {
        let tools = list(&["a", "b", "a"]);
        assert!(Arc::ptr_eq(tools.get("a").unwrap(), &tools[0]));
        assert_eq!(tools.names().collect::<Vec<_>>(), ["a", "b", "a"]);
    }

    #[test]
    fn derived_list_is_made_again_only_for_another_list() {
        let (cache, first) = (DerivedList::default(), list(&["a"]));
        let derive = |inner: &ToolList| Ok::<_, ()>(inner.to_definitions().into());
        let derived = cache.of(first.clone(), derive).unwrap();
        assert!(cache.of(first, derive).unwrap().is_same(&derived));
        assert!(!cache.of(list(&["a"]), derive).unwrap().is_same(&derived));
        let kept = cache.reuse(derived.to_vec());
        assert!(cache.reuse(derived.to_vec()).is_same(&kept));
        assert!(!cache.reuse(Vec::new()).is_same(&kept));
    }
}
