//! The form in which a snapshot stores files.
//!
//! Layers are stored by their ids and files of layers by their paths, so a snapshot need not contain them. Host
//! directories are left out: the code that loads the files mounts them again; descriptors on them are closed. Loading
//! does not trust its input: the result is always a consistent tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::content::{CHUNK, FileContent};
use super::descriptors::Target;
use super::layer::{Layer, LayerFile, LayerKind, LayerNode};
use super::node::{Device, Directory, Entry, LowerDirectory, Node, NodeId, NodeKind, Nodes, PIPE_CAPACITY, Pipe, ROOT};
use super::path_resolution::PathTarget;
use super::socket::Socket;
use super::time::Times;
use super::{Filesystem, NAME_MAX, OpenFlags, PATH_MAX, Quota};

/// The node of a description of a socket, whose connection is not saved. No inode has this number.
const SOCKET: NodeId = NodeId(u32::MAX);

/// The files of one instance in the form that is written to a snapshot. Created by [`Filesystem::save`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FilesystemSnapshot {
    /// The ids of the layers, the lowest first.
    layers: Vec<String>,
    /// The inode table, with its free slots.
    nodes: Vec<Option<SavedNode>>,
    working_directory: NodeId,
    umask: u32,
    descriptions: Vec<SavedDescription>,
    /// The number, the index in `descriptions`, and `FD_CLOEXEC` of each descriptor.
    descriptors: Vec<(u32, u32, bool)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedNode {
    ino: u64,
    mode: u32,
    times: Times,
    private: bool,
    kind: SavedKind,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum SavedKind {
    File {
        size: u64,
        lower: Option<(SavedLower, u64)>,
        chunks: Vec<(u64, Bytes)>,
    },
    /// `None` is a whiteout.
    Directory {
        entries: Vec<(Arc<str>, Option<NodeId>)>,
        lower: Vec<SavedLower>,
    },
    Link(Arc<str>),
    Device(Device),
    Pipe(Bytes),
}

/// A file or directory in a layer.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedLower {
    layer: u32,
    path: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SavedDescription {
    node: NodeId,
    offset: u64,
    flags: OpenFlags,
}

/// An error in loading saved files.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum LoadError {
    /// A layer that the files refer to was not provided.
    #[error("the layer `{0}` is missing")]
    Layer(String),
    /// The data is inconsistent.
    #[error("the saved files are damaged: {0}")]
    Damaged(&'static str),
}

impl Filesystem {
    /// Returns the files in the form that snapshots store.
    pub fn save(&self) -> FilesystemSnapshot {
        let mut nodes = Vec::new();
        for (NodeId(at), node) in self.nodes.slots() {
            nodes.resize_with(at as usize, || None);
            nodes.push((!self.is_omitted(node)).then(|| self.save_node(node)));
        }
        let mut descriptions = Vec::new();
        let mut descriptors = Vec::new();
        let mut places = BTreeMap::new();
        for (fd, description, close_on_exec) in self.descriptors.all() {
            let Some(open) = self.descriptors.at(description) else { continue };
            let node = match open.target {
                Target::Node(node) => node,
                Target::Socket(_) => SOCKET,
                Target::HostFile { .. } | Target::HostDirectory { .. } => continue,
            };
            let place = *places.entry(description).or_insert_with(|| {
                descriptions.push(SavedDescription { node, offset: open.offset, flags: open.flags });
                descriptions.len() as u32 - 1
            });
            descriptors.push((fd, place, close_on_exec));
        }
        let working_directory = match &self.working_directory {
            PathTarget::Node(id) => *id,
            PathTarget::Host { mount, .. } => self.mounts.get(*mount as usize).map_or(ROOT, |mount| mount.at),
        };
        let layers = self.layers.iter().map(|layer| layer.id().to_owned()).collect();
        FilesystemSnapshot { layers, nodes, working_directory, umask: self.umask, descriptions, descriptors }
    }

    /// Returns the deferred file of a layer that these contents are based on. It may be missing where the snapshot is
    /// loaded.
    fn deferred<'a>(&'a self, content: &FileContent) -> Option<(&'a LayerNode, u32)> {
        let (file, _) = content.lower()?;
        let node = self.layers.get(file.layer as usize)?.node(file.node)?;
        node.kind.is_deferred().then_some((node, file.layer))
    }

    /// Returns whether a file is looked up again instead of being saved: an unchanged deferred file.
    fn is_omitted(&self, node: &Node) -> bool {
        let NodeKind::File(content) = &node.kind else { return false };
        let Some((file, layer)) = self.deferred(content) else { return false };
        let place = LowerDirectory { layer, node: file.parent };
        let is_in_place = self.nodes.directory(node.parent).is_ok_and(|parent| parent.lower.contains(&place));
        let is_unchanged = content.unmodified().is_some() && node.times.modified == file.modified && node.mode == 0o644;
        is_unchanged && is_in_place && node.linked && node.name == file.name && node.opens == 0
    }

    fn save_node(&self, node: &Node) -> SavedNode {
        let kind = match &node.kind {
            NodeKind::File(content) if self.deferred(content).is_some() => {
                SavedKind::File { size: content.size(), lower: None, chunks: all_chunks(content) }
            }
            NodeKind::File(content) => SavedKind::File {
                size: content.size(),
                lower: content.lower().map(|(file, shown)| (self.save_lower(file.layer, file.node), shown)),
                chunks: content.chunks().map(|(index, chunk)| (index, Bytes(chunk.clone()))).collect(),
            },
            NodeKind::Directory(directory) => {
                let is_omitted = |id: &NodeId| self.nodes.get(*id).is_ok_and(|node| self.is_omitted(node));
                let entries = directory.entries.iter().filter_map(|(name, entry)| match entry {
                    Entry::Node(id) if is_omitted(id) => None,
                    Entry::Node(id) => Some((name.clone(), Some(*id))),
                    Entry::Whiteout => Some((name.clone(), None)),
                });
                let lower = directory.lower.iter().map(|at| self.save_lower(at.layer, at.node)).collect();
                SavedKind::Directory { entries: entries.collect(), lower }
            }
            NodeKind::Link(target) => SavedKind::Link(target.clone()),
            NodeKind::Device(device) => SavedKind::Device(*device),
            NodeKind::Pipe(pipe) => SavedKind::Pipe(Bytes(Arc::new(pipe.buffer.iter().copied().collect()))),
        };
        SavedNode { ino: node.ino, mode: node.mode, times: node.times, private: node.private, kind }
    }

    fn save_lower(&self, layer: u32, node: u32) -> SavedLower {
        let path = self.layers.get(layer as usize).map(|layer| layer.path_of(node)).unwrap_or_default();
        SavedLower { layer, path }
    }
}

impl FilesystemSnapshot {
    /// Returns the ids of the layers that [`FilesystemSnapshot::load`] needs.
    pub fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(String::as_str).filter(|id| !Layer::is_removed(id))
    }

    /// Returns the path, relative to the directory `path`, and the contents of each regular file in it that contains no
    /// data of a layer. Needs no layers, so it works even if [`FilesystemSnapshot::load`] cannot.
    pub fn written_under(&self, path: &str) -> Vec<(String, Vec<u8>)> {
        /// The maximum number of bytes of all files, with their holes: a file can claim to be larger than any memory.
        const MAX_TOTAL_SIZE: usize = 1 << 30;
        let mut room = MAX_TOTAL_SIZE;
        let node = |NodeId(id): NodeId| self.nodes.get(id as usize).and_then(Option::as_ref);
        let entries = |id| match node(id).map(|node| &node.kind) {
            Some(SavedKind::Directory { entries, .. }) => entries.as_slice(),
            _ => &[],
        };
        let mut at = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let found = entries(at).iter().find(|(entry, _)| **entry == *name).and_then(|(_, id)| *id);
            let Some(found) = found else { return Vec::new() };
            at = found;
        }
        let (mut files, mut todo) = (Vec::new(), vec![(at, String::new())]);
        // A damaged tree may have cycles; an intact one has no more entries than inodes.
        let mut left = self.nodes.len();
        while let Some((directory, prefix)) = todo.pop() {
            for (name, id) in entries(directory) {
                let Some(id) = *id else { continue };
                let Some(rest) = left.checked_sub(1) else { return files };
                left = rest;
                let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}/{name}") };
                match node(id).map(|node| &node.kind) {
                    Some(SavedKind::Directory { .. }) => todo.push((id, path)),
                    Some(SavedKind::File { size, lower: None, chunks }) => {
                        let Some(size) = usize::try_from(*size).ok().filter(|size| *size <= room) else { continue };
                        room -= size;
                        let mut bytes = vec![0; size];
                        for (index, Bytes(chunk)) in chunks {
                            let start = usize::try_from(*index).unwrap_or(usize::MAX).saturating_mul(CHUNK);
                            let place = bytes.get_mut(start..start.saturating_add(chunk.len()));
                            if let Some(place) = place {
                                place.copy_from_slice(chunk);
                            }
                        }
                        files.push((path, bytes));
                    }
                    _ => {}
                }
            }
        }
        files.sort();
        files
    }

    /// Restores the files. `layers` must contain all layers that were in use when the files were saved, in any order;
    /// others are ignored. Usage may exceed `quota`; it can then only shrink.
    pub fn load(self, layers: &[Arc<Layer>], quota: Quota) -> Result<Filesystem, LoadError> {
        let mut files = Filesystem::empty(quota);
        for id in &self.layers {
            let given = layers.iter().find(|layer| layer.id() == id).cloned();
            let layer = given.or_else(|| Layer::is_removed(id).then(Layer::removed));
            files.layers.push(layer.ok_or_else(|| LoadError::Layer(id.clone()))?);
        }
        let mut slots = Vec::new();
        for saved in self.nodes {
            let node = saved.map(|saved| load_node(saved, &files.layers)).transpose()?;
            if let Some(node) = &node {
                files.usage.bytes = files.usage.bytes.saturating_add(node.kind.stored());
                files.usage.inodes = files.usage.inodes.saturating_add(u32::from(node.private));
            }
            slots.push(node);
        }
        files.nodes = Nodes::from_slots(slots).ok_or(LoadError::Damaged("too many inodes"))?;
        files.link_inodes()?;
        files.restore_descriptors(&self.descriptions, &self.descriptors)?;
        files.umask = self.umask & 0o777;
        if files.nodes.directory(self.working_directory).is_err() {
            return Err(LoadError::Damaged("the working directory is not a directory"));
        }
        files.working_directory = PathTarget::Node(ROOT);
        let acquired =
            files.acquire(ROOT).and_then(|()| files.set_working_directory(PathTarget::Node(self.working_directory)));
        acquired.map_err(|_| LoadError::Damaged("the working directory does not exist"))?;
        let inodes: Vec<NodeId> = files.nodes.slots().map(|(id, _)| id).collect();
        for id in inodes {
            files.discard_unused(id);
        }
        Ok(files)
    }
}

impl Filesystem {
    /// Walks the loaded tree from its root, and sets the parent of every inode. Fails if an inode has two.
    fn link_inodes(&mut self) -> Result<(), LoadError> {
        let damaged = |_| LoadError::Damaged("a directory lists an inode that does not exist");
        self.nodes.directory(ROOT).map_err(|_| LoadError::Damaged("the root is not a directory"))?;
        self.nodes.get_mut(ROOT).map_err(damaged)?.linked = true;
        let mut pending = vec![ROOT];
        while let Some(parent) = pending.pop() {
            let entries = self.nodes.directory(parent).map_err(damaged)?.entries.clone();
            for (name, entry) in entries.iter() {
                let Entry::Node(id) = *entry else { continue };
                let node = self.nodes.get_mut(id).map_err(damaged)?;
                if node.linked || matches!(node.kind, NodeKind::Pipe(_)) {
                    return Err(LoadError::Damaged("an inode is in two directories"));
                }
                node.linked = true;
                node.parent = parent;
                node.name = name.clone();
                if let NodeKind::Directory(_) = node.kind {
                    pending.push(id);
                }
            }
        }
        // Removed directories exist as long as they are open, and are empty.
        for (_, node) in self.nodes.slots() {
            if let (false, NodeKind::Directory(directory)) = (node.linked, &node.kind)
                && directory.entries.values().any(|entry| matches!(entry, Entry::Node(_)))
            {
                return Err(LoadError::Damaged("a directory outside of the tree is not empty"));
            }
        }
        Ok(())
    }

    fn restore_descriptors(
        &mut self,
        descriptions: &[SavedDescription],
        descriptors: &[(u32, u32, bool)],
    ) -> Result<(), LoadError> {
        /// The maximum number of descriptors, beyond any quota in use: limits the table for any input.
        const MAX_DESCRIPTORS: u32 = 1 << 16;
        let damaged = |_| LoadError::Damaged("a descriptor is open on an inode that does not exist");
        let mut numbers = Vec::new();
        for saved in descriptions {
            let target = if saved.node == SOCKET {
                Target::Socket(Socket::reset())
            } else {
                self.nodes.get(saved.node).map_err(damaged)?;
                Target::Node(saved.node)
            };
            let number = self.insert_description(target, saved.flags).map_err(damaged)?;
            numbers.push(number);
        }
        for &(fd, place, close_on_exec) in descriptors {
            let Some(&number) = numbers.get(place as usize).filter(|_| fd < MAX_DESCRIPTORS) else {
                return Err(LoadError::Damaged("a descriptor has no description"));
            };
            let number_fd = i32::try_from(fd).map_err(|_| LoadError::Damaged("a descriptor's number is too large"))?;
            if self.description(number_fd).is_ok() {
                return Err(LoadError::Damaged("a descriptor is open twice"));
            }
            self.refer(fd, number, close_on_exec);
            let offset = descriptions.get(place as usize).map_or(0, |saved| saved.offset);
            if let Ok(description) = self.description_mut(number_fd) {
                description.offset = offset;
            }
        }
        if numbers.iter().any(|&number| !self.descriptors.is_referred_to(number)) {
            return Err(LoadError::Damaged("a description has no descriptor"));
        }
        Ok(())
    }
}

/// Returns contents as chunks that need no layer: those that were written, and copies of the layer's file between them.
/// Holes stay holes.
fn all_chunks(content: &FileContent) -> Vec<(u64, Bytes)> {
    let mut chunks: BTreeMap<u64, Arc<Vec<u8>>> = BTreeMap::new();
    let shown = content.lower().map_or(0, |(_, shown)| shown);
    for (index, start) in (0..).zip((0..shown).step_by(CHUNK)) {
        let mut chunk = vec![0; usize::try_from(shown - start).unwrap_or(CHUNK).min(CHUNK)];
        content.read_at(start, &mut chunk);
        chunks.insert(index, Arc::new(chunk));
    }
    chunks.extend(content.chunks().map(|(index, chunk)| (index, chunk.clone())));
    chunks.into_iter().map(|(index, chunk)| (index, Bytes(chunk))).collect()
}

/// Creates an inode that is not in the tree yet.
fn load_node(saved: SavedNode, layers: &[Arc<Layer>]) -> Result<Node, LoadError> {
    Ok(Node {
        ino: saved.ino,
        parent: ROOT,
        name: "".into(),
        linked: false,
        opens: 0,
        mode: saved.mode & 0o7777,
        times: saved.times,
        kind: load_kind(saved.kind, layers)?,
        private: saved.private,
    })
}

fn load_kind(saved: SavedKind, layers: &[Arc<Layer>]) -> Result<NodeKind, LoadError> {
    Ok(match saved {
        SavedKind::File { size, lower, chunks } => {
            let lower = match lower {
                Some((lower, shown)) => Some((load_file(&lower, layers)?, shown)),
                None => None,
            };
            let chunks = chunks.into_iter().map(|(index, Bytes(chunk))| (index, chunk)).collect();
            let content = FileContent::from_parts(size, lower, chunks);
            NodeKind::File(content.ok_or(LoadError::Damaged("a file's parts are inconsistent"))?)
        }
        SavedKind::Directory { entries, lower } => {
            let plain = |name: &str| {
                !name.is_empty() && name != "." && name != ".." && name.len() <= NAME_MAX && !name.contains(['/', '\0'])
            };
            if !entries.iter().all(|(name, _)| plain(name)) {
                return Err(LoadError::Damaged("an entry has an invalid name"));
            }
            let entries = entries.into_iter().map(|(name, id)| (name, id.map_or(Entry::Whiteout, Entry::Node)));
            let lower: Result<_, _> = lower.iter().map(|lower| load_directory(lower, layers)).collect();
            NodeKind::Directory(Directory { entries: Arc::new(entries.collect()), lower: lower?, mount: None })
        }
        SavedKind::Link(target) if !target.is_empty() && target.len() < PATH_MAX => NodeKind::Link(target),
        SavedKind::Link(_) => return Err(LoadError::Damaged("a link has an invalid target")),
        SavedKind::Device(device) => NodeKind::Device(device),
        SavedKind::Pipe(Bytes(buffer)) if buffer.len() <= PIPE_CAPACITY => {
            NodeKind::Pipe(Box::new(Pipe { buffer: buffer.iter().copied().collect(), ..Pipe::default() }))
        }
        SavedKind::Pipe(_) => return Err(LoadError::Damaged("a pipe exceeds its capacity")),
    })
}

fn find_lower<'a>(saved: &SavedLower, layers: &'a [Arc<Layer>]) -> Result<(u32, &'a LayerKind), LoadError> {
    let found = layers.get(saved.layer as usize).and_then(|layer| {
        let index = layer.find(&saved.path)?;
        Some((index, &layer.node(index)?.kind))
    });
    found.ok_or(LoadError::Damaged("a layer lacks a file"))
}

fn load_file(saved: &SavedLower, layers: &[Arc<Layer>]) -> Result<LayerFile, LoadError> {
    let (node, kind) = find_lower(saved, layers)?;
    let bytes = kind.bytes().cloned();
    let bytes = bytes.ok_or(LoadError::Damaged("a layer has another type of file in place of a regular file"))?;
    Ok(LayerFile { layer: saved.layer, node, bytes })
}

fn load_directory(saved: &SavedLower, layers: &[Arc<Layer>]) -> Result<LowerDirectory, LoadError> {
    match find_lower(saved, layers)? {
        (node, LayerKind::Directory(_)) => Ok(LowerDirectory { layer: saved.layer, node }),
        _ => Err(LoadError::Damaged("a layer has another type of file in place of a directory")),
    }
}

/// Bytes that are serialized as one value, not one by one.
#[derive(Debug, Clone)]
struct Bytes(Arc<Vec<u8>>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BytesVisitor;

        impl Visitor<'_> for BytesVisitor {
            type Value = Bytes;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "at most {CHUNK} bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                if bytes.len() > CHUNK {
                    return Err(E::invalid_length(bytes.len(), &self));
                }
                Ok(Bytes(Arc::new(bytes.to_vec())))
            }
        }

        deserializer.deserialize_bytes(BytesVisitor)
    }
}
