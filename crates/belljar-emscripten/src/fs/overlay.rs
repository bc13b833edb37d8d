//! How the directories of layers show through, and how changes to them are kept: whiteouts, copies on write.
//!
//! An inode of a layer is given a place in the table when it is first looked up. Until then it exists in the layer
//! alone; its inode number is known in both cases.

use std::ops::Bound;
use std::sync::Arc;

use super::content::Content;
use super::layer::{Layer, LayerFile, LayerKind};
use super::node::{Directory, Entry, FileType, Kind, LowerDirectory, Node, NodeId, ROOT};
use super::time::Times;
use super::{Filesystem, Timestamp};
use crate::Errno;

/// An entry of a directory, as listing it shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) name: Arc<str>,
    pub(super) ino: u64,
    pub(super) file_type: FileType,
}

impl Filesystem {
    /// The layers, the lowest first.
    pub(crate) fn layers(&self) -> &[Arc<Layer>] {
        &self.layers
    }

    /// Puts a layer under the private files and over the layers that are there already.
    ///
    /// Its directories merge with those of the same path. Anything else it holds hides what earlier layers have there,
    /// unless the guest has seen that already, and is itself hidden by what the guest made or removed there.
    pub fn add_layer(&mut self, layer: Arc<Layer>) {
        let index = self.layers.len() as u32;
        self.layers.push(layer);
        let mut pending = vec![(ROOT, 0)];
        let now = Timestamp::now();
        while let Some((id, node)) = pending.pop() {
            let Ok(Node { kind: Kind::Directory(directory), times, .. }) = self.nodes.get_mut(id) else { continue };
            // So that whoever caches a listing by the directory's time reads it again.
            times.modified = now;
            times.changed = now;
            let above = LowerDirectory { layer: index, node };
            directory.lower = std::iter::once(above).chain(directory.lower.iter().copied()).collect();
            let Some(children) = self.layers.last().and_then(|layer| layer.entries(node)) else { continue };
            for (name, &child) in children {
                if let Some(&Entry::Node(known)) = directory.entries.get(name)
                    && self.layers.last().is_some_and(|layer| layer.entries(child).is_some())
                {
                    pending.push((known, child));
                }
            }
        }
    }

    /// Takes a layer away; false when there is none with this id. What the guest wrote stays, in files of the layer too;
    /// what lower layers have under the same names shows again.
    pub fn remove_layer(&mut self, id: &str) -> bool {
        let Some(index) = self.layers.iter().position(|layer| layer.id() == id) else { return false };
        let Ok(number) = u32::try_from(index) else { return false };
        self.layers[index] = Layer::removed();
        // Inodes that were looked up in it: those that nobody changed go, and directories that nothing is left of.
        let mut directories = Vec::new();
        for id in self.nodes.slots().map(|(id, _)| id).collect::<Vec<_>>() {
            let Ok(node) = self.nodes.get_mut(id) else { continue };
            let found_there = node.ino >> 32 == u64::from(number) + 1;
            match &mut node.kind {
                Kind::Directory(directory) => {
                    directory.lower = directory.lower.iter().filter(|at| at.layer != number).copied().collect();
                    if found_there {
                        directories.push(id);
                    }
                }
                Kind::File(content) if found_there && content.pristine().is_none() => {}
                _ if found_there => self.forget(id),
                _ => {}
            }
        }
        // Inner directories were looked up after outer ones, but may have their places: each pass empties one level.
        while let Some(at) = directories.iter().position(|&id| self.is_bare(id)) {
            self.forget(directories.swap_remove(at));
        }
        true
    }

    /// Whether a directory holds nothing and shows nothing.
    fn is_bare(&self, id: NodeId) -> bool {
        self.nodes.directory(id).is_ok_and(|directory| directory.entries.is_empty() && directory.lower.is_empty())
    }

    /// Takes an inode that was found in a layer out of its directory, as if it had never been looked up.
    fn forget(&mut self, id: NodeId) {
        let Ok(node) = self.nodes.get_mut(id) else { return };
        if !std::mem::take(&mut node.linked) {
            return;
        }
        let (parent, name) = (node.parent, node.name.clone());
        if let Ok(directory) = self.nodes.directory_mut(parent) {
            Arc::make_mut(&mut directory.entries).remove(&name);
        }
        self.touch(parent);
        self.discard_unused(id);
    }

    /// The inode called `name` in `directory`; `None` when there is none.
    pub(super) fn child(&mut self, directory: NodeId, name: &str) -> Result<Option<NodeId>, Errno> {
        match self.nodes.directory(directory)?.entries.get(name) {
            Some(&Entry::Node(id)) => Ok(Some(id)),
            Some(Entry::Whiteout) => Ok(None),
            None => self.discover(directory, name),
        }
    }

    /// Looks for `name` in the layers under `directory`, and gives what it finds a place in the table.
    fn discover(&mut self, directory: NodeId, name: &str) -> Result<Option<NodeId>, Errno> {
        let Some(found) = self.find_lower(directory, name)? else { return Ok(None) };
        let Some(layer_node) = self.layers.get(found.layer as usize).and_then(|layer| layer.node(found.node)) else {
            return Err(Errno::EIO);
        };
        let (mode, kind) = match &layer_node.kind {
            LayerKind::File(bytes) => {
                let file = LayerFile { layer: found.layer, node: found.node, bytes: bytes.clone() };
                (0o644, Kind::File(Content::of_layer(file)))
            }
            LayerKind::Link(target) => (0o777, Kind::Link(target.clone())),
            LayerKind::Directory(_) => {
                let lower = self.merged(directory, name)?;
                (0o755, Kind::Directory(Directory { lower, ..Directory::default() }))
            }
        };
        let name = layer_node.name.clone();
        let times = Times::all(layer_node.modified);
        let id = self.nodes.insert(|_| Node {
            ino: lower_ino(found),
            parent: directory,
            name: name.clone(),
            linked: true,
            opens: 0,
            mode,
            times,
            kind,
            private: false,
        })?;
        let entries = &mut self.nodes.directory_mut(directory)?.entries;
        Arc::make_mut(entries).insert(name, Entry::Node(id));
        Ok(Some(id))
    }

    /// The topmost layer's inode called `name` under `directory`.
    fn find_lower(&self, directory: NodeId, name: &str) -> Result<Option<LowerDirectory>, Errno> {
        let lower = &self.nodes.directory(directory)?.lower;
        Ok(lower.iter().find_map(|at| {
            let node = *self.layers.get(at.layer as usize)?.entries(at.node)?.get(name)?;
            Some(LowerDirectory { layer: at.layer, node })
        }))
    }

    /// The directories called `name` under `directory` that show as one: down to the first that is something else.
    fn merged(&self, directory: NodeId, name: &str) -> Result<Arc<[LowerDirectory]>, Errno> {
        let lower = &self.nodes.directory(directory)?.lower;
        let found = lower.iter().filter_map(|at| {
            let layer = self.layers.get(at.layer as usize)?;
            let node = *layer.entries(at.node)?.get(name)?;
            Some((LowerDirectory { layer: at.layer, node }, layer.entries(node).is_some()))
        });
        Ok(found.take_while(|(_, is_directory)| *is_directory).map(|(at, _)| at).collect())
    }

    /// Lists `id` in `directory` under `name`, in place of what was there.
    pub(super) fn enter(&mut self, directory: NodeId, name: Arc<str>, id: NodeId) -> Result<(), Errno> {
        let entries = &mut self.nodes.directory_mut(directory)?.entries;
        Arc::make_mut(entries).insert(name.clone(), Entry::Node(id));
        self.touch(directory);
        let node = self.nodes.get_mut(id)?;
        node.parent = directory;
        node.name = name;
        node.linked = true;
        Ok(())
    }

    /// Takes `name` out of `directory`. The inode itself stays, for whoever still holds it.
    pub(super) fn leave(&mut self, directory: NodeId, name: &str) -> Result<(), Errno> {
        let below = self.find_lower(directory, name)?.is_some();
        let entries = Arc::make_mut(&mut self.nodes.directory_mut(directory)?.entries);
        let removed = entries.remove_entry(name);
        if below {
            let name = removed.as_ref().map_or_else(|| name.into(), |(name, _)| name.clone());
            entries.insert(name, Entry::Whiteout);
        }
        self.touch(directory);
        if let Some((_, Entry::Node(id))) = removed {
            let node = self.nodes.get_mut(id)?;
            node.linked = false;
            node.times.changed = Timestamp::now();
        }
        Ok(())
    }

    /// Notes that a directory's entries changed.
    fn touch(&mut self, directory: NodeId) {
        if let Ok(node) = self.nodes.get_mut(directory) {
            let now = Timestamp::now();
            node.times.modified = now;
            node.times.changed = now;
        }
    }

    /// The first entry of `directory` whose name comes after `after` (the first of all, for `None`).
    pub(super) fn next_entry<'a>(
        &'a self,
        directory: NodeId,
        mut after: Option<&'a str>,
    ) -> Result<Option<Shown>, Errno> {
        let directory = self.nodes.directory(directory)?;
        loop {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let range = (from, Bound::<&str>::Unbounded);
            let here = directory.entries.range::<str, _>(range).next();
            let below = directory.lower.iter().filter_map(|at| {
                let layer = self.layers.get(at.layer as usize)?;
                let (name, &node) = layer.entries(at.node)?.range::<str, _>(range).next()?;
                Some((name, LowerDirectory { layer: at.layer, node }))
            });
            // The least name; of layers that both have it the topmost, which comes first.
            let below = below.min_by(|(one, _), (other, _)| one.cmp(other));
            match (here, below) {
                (None, None) => return Ok(None),
                (Some((name, entry)), below) if below.is_none_or(|(lower, _)| name <= lower) => match entry {
                    Entry::Whiteout => after = Some(name),
                    Entry::Node(id) => {
                        let node = self.nodes.get(*id)?;
                        let (ino, file_type) = (node.ino, node.kind.file_type());
                        return Ok(Some(Shown { name: name.clone(), ino, file_type }));
                    }
                },
                (_, Some((name, at))) => {
                    let node = self.layers.get(at.layer as usize).and_then(|layer| layer.node(at.node));
                    let file_type = match node.ok_or(Errno::EIO)?.kind {
                        LayerKind::File(_) => FileType::Regular,
                        LayerKind::Directory(_) => FileType::Directory,
                        LayerKind::Link(_) => FileType::Link,
                    };
                    return Ok(Some(Shown { name: name.clone(), ino: lower_ino(at), file_type }));
                }
                // The guard above leaves nothing for this: a name from here without one from below is always taken.
                (Some(_), None) => return Ok(None),
            }
        }
    }

    /// Whether nothing is listed in `directory`.
    pub(super) fn is_empty(&self, directory: NodeId) -> Result<bool, Errno> {
        Ok(self.next_entry(directory, None)?.is_none())
    }
}

/// Inode number of something in a layer. Private inodes have numbers below these.
pub(super) fn lower_ino(at: LowerDirectory) -> u64 {
    (u64::from(at.layer) + 1) << 32 | u64::from(at.node)
}
