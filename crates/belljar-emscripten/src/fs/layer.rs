//! Read-only file trees that instances share: a standard library, a site-packages directory.
//!
//! The host builds a layer once, and its files never change. Each filesystem that contains it stores its guest's
//! changes separately.
//!
//! A layer may have *deferred* files: files whose contents the host can do without at first, such as bytecode that
//! Python would compile itself. A deferred file has its place in the tree, but does not exist for guests until the host
//! has supplied its contents. The layer records which ones guests have looked for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::{FileBytes, NAME_MAX, Timestamp};

/// An immutable tree of files.
pub struct Layer {
    id: String,
    nodes: Vec<LayerNode>,
    /// Set if guests have looked for deferred files without contents since the last [`Layer::take_missed`].
    has_missed: AtomicBool,
}

/// One file, directory or symbolic link of a layer.
pub(super) struct LayerNode {
    pub(super) name: Arc<str>,
    pub(super) parent: u32,
    pub(super) modified: Timestamp,
    pub(super) kind: LayerKind,
}

pub(super) enum LayerKind {
    File(FileBytes),
    Deferred(DeferredFile),
    Directory(BTreeMap<Arc<str>, u32>),
    Link(Arc<str>),
}

impl LayerKind {
    /// Returns the contents of a file that exists.
    pub(super) fn bytes(&self) -> Option<&FileBytes> {
        match self {
            Self::File(bytes) => Some(bytes),
            Self::Deferred(file) => file.contents.get(),
            Self::Directory(_) | Self::Link(_) => None,
        }
    }

    /// Returns whether this is a file whose contents other processes may not have.
    pub(super) fn is_deferred(&self) -> bool {
        matches!(self, Self::Deferred(_))
    }
}

/// A file whose contents are supplied later.
#[derive(Default)]
pub(super) struct DeferredFile {
    contents: OnceLock<FileBytes>,
    /// Set if a guest has looked for the file while it did not exist.
    is_missed: AtomicBool,
}

/// A file, directory or symbolic link of a layer: see [`Layer::contents`].
#[derive(Debug, Clone, Copy)]
pub enum LayerContent<'a> {
    /// A regular file.
    File(&'a FileBytes),
    /// A deferred file without contents.
    Deferred,
    /// A directory.
    Directory,
    /// A symbolic link to this target.
    Link(&'a str),
}

/// A regular file of a layer, with its position.
#[derive(Clone)]
pub(super) struct LayerFile {
    /// The index of the layer in the filesystem's list.
    pub(super) layer: u32,
    /// The index of the file in the layer.
    pub(super) node: u32,
    pub(super) bytes: FileBytes,
}

/// The id of the empty layer that replaces a removed one.
const REMOVED: &str = "";

impl Layer {
    /// Creates the empty layer that replaces a removed one.
    pub(super) fn removed() -> Arc<Self> {
        LayerBuilder::new().finish(REMOVED)
    }

    /// Returns whether this is the id of [`Layer::removed`].
    pub(super) fn is_removed(id: &str) -> bool {
        id == REMOVED
    }

    /// Returns the id of the layer: equal for layers with equal contents.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the files, directories and links of the layer with their paths, in the order in which they were added. A
    /// layer to which the same are added in this order is equal, down to its inode numbers.
    pub fn contents(&self) -> impl Iterator<Item = (String, LayerContent<'_>)> {
        (1..).zip(self.nodes.iter().skip(1)).map(|(index, node)| {
            let content = match &node.kind {
                LayerKind::File(bytes) => LayerContent::File(bytes),
                LayerKind::Deferred(file) => file.contents.get().map_or(LayerContent::Deferred, LayerContent::File),
                LayerKind::Directory(_) => LayerContent::Directory,
                LayerKind::Link(target) => LayerContent::Link(target),
            };
            (self.path_of(index), content)
        })
    }

    /// Returns the contents of a regular file, unless it is a deferred one without contents.
    pub fn file(&self, path: &str) -> Option<&FileBytes> {
        self.node(self.find(path)?)?.kind.bytes()
    }

    /// Supplies the contents of a deferred file, which exists from now on in every filesystem with the layer. Later
    /// calls change nothing. Returns false if the path is not that of a deferred file.
    pub fn supply(&self, path: &str, contents: FileBytes) -> bool {
        let node = self.find(path).and_then(|index| self.node(index));
        let Some(LayerNode { kind: LayerKind::Deferred(file), .. }) = node else { return false };
        // An error means that the contents are there already.
        let _ = file.contents.set(contents);
        true
    }

    /// Returns the paths of the deferred files that guests have looked for in vain since the last call.
    pub fn take_missed(&self) -> Vec<String> {
        if !self.has_missed.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let is_missed = |node: &LayerNode| match &node.kind {
            LayerKind::Deferred(file) => file.is_missed.swap(false, Ordering::Relaxed) && file.contents.get().is_none(),
            _ => false,
        };
        (0..).zip(&self.nodes).filter(|(_, node)| is_missed(node)).map(|(index, _)| self.path_of(index)).collect()
    }

    /// Returns a layer with the same id and tree, in which only those deferred files have contents that `is_kept`
    /// accepts by their path.
    pub fn with_deferred(&self, is_kept: impl Fn(&str) -> bool) -> Arc<Self> {
        let nodes = (0..).zip(&self.nodes).map(|(index, node)| {
            let kind = match &node.kind {
                LayerKind::File(bytes) => LayerKind::File(bytes.clone()),
                LayerKind::Deferred(file) => {
                    let contents = file.contents.get().filter(|_| is_kept(&self.path_of(index)));
                    let contents = contents.map_or_else(OnceLock::new, |contents| contents.clone().into());
                    LayerKind::Deferred(DeferredFile { contents, is_missed: AtomicBool::new(false) })
                }
                LayerKind::Directory(entries) => LayerKind::Directory(entries.clone()),
                LayerKind::Link(target) => LayerKind::Link(target.clone()),
            };
            LayerNode { name: node.name.clone(), parent: node.parent, modified: node.modified, kind }
        });
        Arc::new(Self { id: self.id.clone(), nodes: nodes.collect(), has_missed: AtomicBool::new(false) })
    }

    /// Returns whether a node exists for guests: it does unless it is a deferred file without contents.
    pub(super) fn exists(&self, index: u32) -> bool {
        match self.node(index).map(|node| &node.kind) {
            Some(LayerKind::Deferred(file)) => file.contents.get().is_some(),
            node => node.is_some(),
        }
    }

    /// Returns the existing entry `name` of a directory. Records that a deferred file was looked for.
    pub(super) fn entry(&self, directory: u32, name: &str) -> Option<u32> {
        let index = *self.entries(directory)?.get(name)?;
        match &self.node(index)?.kind {
            LayerKind::Deferred(file) if file.contents.get().is_none() => {
                file.is_missed.store(true, Ordering::Relaxed);
                self.has_missed.store(true, Ordering::Relaxed);
                None
            }
            _ => Some(index),
        }
    }

    pub(super) fn node(&self, index: u32) -> Option<&LayerNode> {
        self.nodes.get(index as usize)
    }

    /// Returns the entries of a directory of the layer; `None` if the node is not a directory.
    pub(super) fn entries(&self, index: u32) -> Option<&BTreeMap<Arc<str>, u32>> {
        match &self.node(index)?.kind {
            LayerKind::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    /// Returns the path of a node from the layer's root, without a leading slash.
    pub(super) fn path_of(&self, index: u32) -> String {
        let mut names = Vec::new();
        let mut current = index;
        // A node's parent was created before it, so the loop ends at the root, which is 0.
        while let Some(node) = self.node(current).filter(|_| current != 0) {
            names.push(&*node.name);
            current = node.parent;
        }
        names.reverse();
        names.join("/")
    }

    /// Returns the node at a path in the form of [`Layer::path_of`].
    pub(super) fn find(&self, path: &str) -> Option<u32> {
        let mut names = path.split('/').filter(|name| !name.is_empty());
        names.try_fold(0, |directory, name| self.entries(directory)?.get(name).copied())
    }
}

impl std::fmt::Debug for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layer").field("id", &self.id).field("nodes", &self.nodes.len()).finish()
    }
}

/// An error in adding a path to a layer.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum LayerError {
    /// A component is empty, `.`, `..`, too long or contains a NUL.
    #[error("`{0}` is not a plain path: components must be names of at most {NAME_MAX} bytes, without `.` and `..`")]
    Path(String),
    /// The path is already in the layer.
    #[error("`{0}` is already in the layer")]
    Exists(String),
    /// A component that must be a directory is a file or a link.
    #[error("`{0}` passes through a file that is not a directory")]
    NotADirectory(String),
}

/// A builder of a [`Layer`]. Paths are the guest's, from its root; missing directories are created.
pub struct LayerBuilder {
    nodes: Vec<LayerNode>,
    modified: Timestamp,
}

impl Default for LayerBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl LayerBuilder {
    /// Creates an empty layer. Its files are dated 1980-01-01, the earliest time that a zip archive can hold, so that
    /// equal trees are equal layers.
    pub fn new() -> Self {
        let modified = Timestamp { seconds: 315_532_800, nanoseconds: 0 };
        let root = LayerNode { name: "".into(), parent: 0, modified, kind: LayerKind::Directory(BTreeMap::new()) };
        Self { nodes: vec![root], modified }
    }

    /// Adds a regular file.
    pub fn file(&mut self, path: &str, bytes: impl Into<FileBytes>) -> Result<&mut Self, LayerError> {
        self.add(path, LayerKind::File(bytes.into()))
    }

    /// Adds a deferred file, which does not exist for guests until [`Layer::supply`] is called.
    pub fn deferred(&mut self, path: &str) -> Result<&mut Self, LayerError> {
        self.add(path, LayerKind::Deferred(DeferredFile::default()))
    }

    /// Adds a symbolic link to `target`, which is resolved by the guest's rules.
    pub fn symlink(&mut self, path: &str, target: &str) -> Result<&mut Self, LayerError> {
        if target.is_empty() || target.len() >= super::PATH_MAX || target.contains('\0') {
            return Err(LayerError::Path(target.into()));
        }
        self.add(path, LayerKind::Link(target.into()))
    }

    /// Adds a directory and its missing parents.
    pub fn directory(&mut self, path: &str) -> Result<&mut Self, LayerError> {
        self.make_directories(path.strip_suffix('/').unwrap_or(path), path)?;
        Ok(self)
    }

    /// Finishes the layer. `id` identifies its contents: two layers with the same id must be the same tree.
    pub fn finish(self, id: impl Into<String>) -> Arc<Layer> {
        Arc::new(Layer { id: id.into(), nodes: self.nodes, has_missed: AtomicBool::new(false) })
    }

    fn add(&mut self, path: &str, kind: LayerKind) -> Result<&mut Self, LayerError> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        check_name(name, path)?;
        let parent = self.make_directories(directory, path)?;
        let index = self.nodes.len() as u32;
        let name: Arc<str> = name.into();
        if self.entries(parent, path)?.contains_key(&name) {
            return Err(LayerError::Exists(path.into()));
        }
        self.entries(parent, path)?.insert(name.clone(), index);
        self.nodes.push(LayerNode { name, parent, modified: self.modified, kind });
        Ok(self)
    }

    fn make_directories(&mut self, directory: &str, path: &str) -> Result<u32, LayerError> {
        let mut current = 0;
        let directory = directory.strip_prefix('/').unwrap_or(directory);
        let names = || directory.split('/').filter(|_| !directory.is_empty());
        names().try_for_each(|name| check_name(name, path))?;
        for name in names() {
            let next = self.nodes.len() as u32;
            current = match self.entries(current, path)?.get(name) {
                Some(&existing) => existing,
                None => {
                    let name: Arc<str> = name.into();
                    self.entries(current, path)?.insert(name.clone(), next);
                    let kind = LayerKind::Directory(BTreeMap::new());
                    self.nodes.push(LayerNode { name, parent: current, modified: self.modified, kind });
                    next
                }
            };
        }
        self.entries(current, path)?;
        Ok(current)
    }

    fn entries(&mut self, index: u32, path: &str) -> Result<&mut BTreeMap<Arc<str>, u32>, LayerError> {
        match self.nodes.get_mut(index as usize).map(|node| &mut node.kind) {
            Some(LayerKind::Directory(entries)) => Ok(entries),
            _ => Err(LayerError::NotADirectory(path.into())),
        }
    }
}

fn check_name(name: &str, path: &str) -> Result<(), LayerError> {
    if name.is_empty() || name == "." || name == ".." || name.len() > NAME_MAX || name.contains('\0') {
        return Err(LayerError::Path(path.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_nodes_and_back() {
        let mut builder = LayerBuilder::new();
        builder.file("/lib/python/os.py", b"pass".to_vec()).unwrap().symlink("lib/py", "python").unwrap();
        builder.directory("/lib/empty/").unwrap().directory("/").unwrap();
        let layer = builder.finish("id");
        for path in ["lib/python/os.py", "lib/py", "lib/empty", "lib", ""] {
            assert_eq!(layer.path_of(layer.find(path).unwrap()), path);
        }
        assert!(layer.find("lib/absent").is_none());
        assert!(layer.find("lib/python/os.py/x").is_none());
    }

    #[test]
    fn contents_make_an_equal_layer() {
        let mut builder = LayerBuilder::new();
        builder.file("/lib/python/os.py", b"pass".to_vec()).unwrap().symlink("lib/py", "python").unwrap();
        builder.directory("/lib/empty/").unwrap();
        let layer = builder.finish("id");
        let mut copy = LayerBuilder::new();
        for (path, content) in layer.contents() {
            match content {
                LayerContent::File(bytes) => copy.file(&path, bytes.clone()).map(drop).unwrap(),
                LayerContent::Deferred => copy.deferred(&path).map(drop).unwrap(),
                LayerContent::Directory => copy.directory(&path).map(drop).unwrap(),
                LayerContent::Link(target) => copy.symlink(&path, target).map(drop).unwrap(),
            }
        }
        let copy = copy.finish("id");
        for path in ["lib", "lib/python", "lib/python/os.py", "lib/py", "lib/empty"] {
            assert_eq!(copy.find(path), Some(layer.find(path).unwrap()), "{path}");
        }
    }

    #[test]
    fn deferred_file_exists_once_its_contents_are_supplied() {
        let mut builder = LayerBuilder::new();
        builder.deferred("a/b").unwrap().deferred("a/c").unwrap();
        let layer = builder.finish("id");
        let directory = layer.find("a").unwrap();
        assert_eq!(layer.entry(directory, "b"), None);
        assert_eq!(layer.take_missed(), ["a/b"]);
        assert!(layer.take_missed().is_empty());
        assert!(layer.supply("a/b", b"1".to_vec().into()));
        assert!(!layer.supply("a", b"1".to_vec().into()));
        assert_eq!(layer.file("a/b").map(|bytes| bytes.to_vec()), Some(b"1".to_vec()));
        assert_eq!(layer.entry(directory, "b"), layer.find("a/b"));
        let (all, none) = (layer.with_deferred(|path| path == "a/b"), layer.with_deferred(|_| false));
        assert!(all.entry(directory, "b").is_some() && none.entry(directory, "b").is_none());
        assert!(all.id() == "id" && none.take_missed() == ["a/b"] && layer.take_missed().is_empty());
    }

    #[test]
    fn paths_that_are_not_plain_are_refused() {
        let mut builder = LayerBuilder::new();
        let file = |builder: &mut LayerBuilder, path: &str| builder.file(path, Vec::new()).err();
        for path in ["", "/", "a/../b", "./a", "a//b", "a\0b", "a/", &"x".repeat(256)] {
            assert_eq!(file(&mut builder, path), Some(LayerError::Path(path.into())), "{path:?}");
        }
        assert_eq!(file(&mut builder, "a"), None);
        assert_eq!(file(&mut builder, "a"), Some(LayerError::Exists("a".into())));
        assert_eq!(file(&mut builder, "a/b"), Some(LayerError::NotADirectory("a/b".into())));
        assert!(builder.directory("a").is_err());
    }
}
