//! The overlay: merging the directories of layers, and recording changes to them as whiteouts and copies on write.
//!
//! An inode of a layer is added to the table when it is first looked up. Until then it exists in the layer alone; its
//! inode number is the same in both cases.

use std::ops::Bound;
use std::sync::Arc;

use super::Filesystem;
use super::content::FileContent;
use super::layer::{Layer, LayerFile, LayerKind};
use super::node::{Directory, Entry, FileType, LowerDirectory, Node, NodeId, NodeKind, ROOT};
use super::time::Times;
use crate::Errno;

/// An entry in the listing of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergedEntry {
    pub(super) name: Arc<str>,
    pub(super) ino: u64,
    pub(super) file_type: FileType,
}

impl Filesystem {
    /// Returns the layers, the lowest first.
    pub fn layers(&self) -> &[Arc<Layer>] {
        &self.layers
    }

    /// Adds a layer below the private files and above the existing layers.
    ///
    /// Its directories merge with those of the same path. Its other files hide those of lower layers, unless the guest
    /// has looked them up already, and are themselves hidden by files that the guest created or removed.
    pub fn add_layer(&mut self, layer: Arc<Layer>) {
        let index = self.layers.len() as u32;
        self.layers.push(layer);
        let mut pending = vec![(ROOT, 0)];
        let now = self.now();
        while let Some((id, node)) = pending.pop() {
            let Ok(Node { kind: NodeKind::Directory(directory), times, .. }) = self.nodes.get_mut(id) else { continue };
            // Invalidates listings that are cached by the directory's time.
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

    /// Removes a layer; returns false if no layer has this id. Data that the guest wrote remains, also in files of the
    /// layer; files of lower layers with the same names become visible again.
    pub fn remove_layer(&mut self, id: &str) -> bool {
        let Some(index) = self.layers.iter().position(|layer| layer.id() == id) else { return false };
        let Ok(number) = u32::try_from(index) else { return false };
        self.layers[index] = Layer::removed();
        // Evicts the inodes that were looked up in the layer: unmodified files, and directories that are then empty.
        let mut directories = Vec::new();
        for id in self.nodes.slots().map(|(id, _)| id).collect::<Vec<_>>() {
            let Ok(node) = self.nodes.get_mut(id) else { continue };
            let found_there = node.ino >> 32 == u64::from(number) + 1;
            match &mut node.kind {
                NodeKind::Directory(directory) => {
                    directory.lower = directory.lower.iter().filter(|at| at.layer != number).copied().collect();
                    if found_there {
                        directories.push(id);
                    }
                }
                NodeKind::File(content) if found_there && content.unmodified().is_none() => {}
                _ if found_there => self.evict_lookup(id),
                _ => {}
            }
        }
        // An inner directory was looked up after its outer one, but may have a lower index: each pass evicts one level.
        while let Some(at) = directories.iter().position(|&id| self.is_unused(id)) {
            self.evict_lookup(directories.swap_remove(at));
        }
        true
    }

    /// Returns whether a directory has neither entries nor layers.
    fn is_unused(&self, id: NodeId) -> bool {
        self.nodes.directory(id).is_ok_and(|directory| directory.entries.is_empty() && directory.lower.is_empty())
    }

    /// Takes an inode that was found in a layer out of its directory, as if it had never been looked up.
    fn evict_lookup(&mut self, id: NodeId) {
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

    /// Returns the inode called `name` in `directory`; `None` if the entry does not exist.
    pub(super) fn child(&mut self, directory: NodeId, name: &str) -> Result<Option<NodeId>, Errno> {
        match self.nodes.directory(directory)?.entries.get(name) {
            Some(&Entry::Node(id)) => Ok(Some(id)),
            Some(Entry::Whiteout) => Ok(None),
            None => self.discover(directory, name),
        }
    }

    /// Looks `name` up in the layers under `directory`, and adds the inode to the table.
    fn discover(&mut self, directory: NodeId, name: &str) -> Result<Option<NodeId>, Errno> {
        let Some(found) = self.find_lower(directory, name)? else { return Ok(None) };
        let Some(layer_node) = self.layers.get(found.layer as usize).and_then(|layer| layer.node(found.node)) else {
            return Err(Errno::EIO);
        };
        let (mode, kind) = match &layer_node.kind {
            LayerKind::File(_) | LayerKind::Deferred(_) => {
                let bytes = layer_node.kind.bytes().cloned().ok_or(Errno::EIO)?;
                let file = LayerFile { layer: found.layer, node: found.node, bytes };
                (0o644, NodeKind::File(FileContent::from_layer(file)))
            }
            LayerKind::Link(target) => (0o777, NodeKind::Link(target.clone())),
            LayerKind::Directory(_) => {
                let lower = self.merged(directory, name)?;
                (0o755, NodeKind::Directory(Directory { lower, ..Directory::default() }))
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

    /// Returns the topmost layer's inode called `name` under `directory`.
    fn find_lower(&self, directory: NodeId, name: &str) -> Result<Option<LowerDirectory>, Errno> {
        let lower = &self.nodes.directory(directory)?.lower;
        Ok(lower.iter().find_map(|at| {
            let layer = self.layers.get(at.layer as usize)?;
            let found = layer.entry(at.node, name);
            let node = *layer.entries(at.node)?.get(name)?;
            self.exists_for_guest(at.layer, node, found.is_some()).then_some(LowerDirectory { layer: at.layer, node })
        }))
    }

    /// Returns whether a node of a layer exists, where `exists` is whether it does now. If the guest is recorded, that
    /// does not change.
    fn exists_for_guest(&self, layer: u32, node: u32, exists: bool) -> bool {
        let Some(recording) = self.sources.as_recorded() else { return exists };
        let found = self.layers.get(layer as usize).and_then(|layer| layer.node(node));
        let is_deferred = found.is_some_and(|found| found.kind.is_deferred());
        if is_deferred { recording.deferred_exists(layer, node, exists) } else { exists }
    }

    /// Returns the directories called `name` under `directory` that are merged: down to the first entry of another
    /// type.
    fn merged(&self, directory: NodeId, name: &str) -> Result<Arc<[LowerDirectory]>, Errno> {
        let lower = &self.nodes.directory(directory)?.lower;
        let found = lower.iter().filter_map(|at| {
            let layer = self.layers.get(at.layer as usize)?;
            let node = *layer.entries(at.node)?.get(name)?;
            Some((LowerDirectory { layer: at.layer, node }, layer.entries(node).is_some()))
        });
        Ok(found.take_while(|(_, is_directory)| *is_directory).map(|(at, _)| at).collect())
    }

    /// Lists `id` in `directory` under `name`, replacing an existing entry.
    pub(super) fn insert_entry(&mut self, directory: NodeId, name: Arc<str>, id: NodeId) -> Result<(), Errno> {
        let entries = &mut self.nodes.directory_mut(directory)?.entries;
        Arc::make_mut(entries).insert(name.clone(), Entry::Node(id));
        self.touch(directory);
        let node = self.nodes.get_mut(id)?;
        node.parent = directory;
        node.name = name;
        node.linked = true;
        Ok(())
    }

    /// Removes `name` from `directory`. The inode itself remains for its other references.
    pub(super) fn remove_entry(&mut self, directory: NodeId, name: &str) -> Result<(), Errno> {
        let below = self.find_lower(directory, name)?.is_some();
        let entries = Arc::make_mut(&mut self.nodes.directory_mut(directory)?.entries);
        let removed = entries.remove_entry(name);
        if below {
            let name = removed.as_ref().map_or_else(|| name.into(), |(name, _)| name.clone());
            entries.insert(name, Entry::Whiteout);
        }
        self.touch(directory);
        if let Some((_, Entry::Node(id))) = removed {
            let now = self.now();
            let node = self.nodes.get_mut(id)?;
            node.linked = false;
            node.times.changed = now;
        }
        Ok(())
    }

    /// Updates the times of a directory whose entries changed.
    fn touch(&mut self, directory: NodeId) {
        let now = self.now();
        if let Ok(node) = self.nodes.get_mut(directory) {
            node.times.modified = now;
            node.times.changed = now;
        }
    }

    /// Returns the first entry of `directory` whose name is greater than `after` (the first entry for `None`).
    pub(super) fn next_entry<'a>(
        &'a self,
        directory: NodeId,
        mut after: Option<&'a str>,
    ) -> Result<Option<MergedEntry>, Errno> {
        let directory = self.nodes.directory(directory)?;
        loop {
            let from = after.map_or(Bound::Unbounded, Bound::Excluded);
            let range = (from, Bound::<&str>::Unbounded);
            let here = directory.entries.range::<str, _>(range).next();
            let below = directory.lower.iter().filter_map(|at| {
                let layer = self.layers.get(at.layer as usize)?;
                let entries = layer.entries(at.node)?.range::<str, _>(range);
                let exists = |node| self.exists_for_guest(at.layer, node, layer.exists(node));
                let (name, &node) = entries.into_iter().find(|(_, node)| exists(**node))?;
                Some((name, LowerDirectory { layer: at.layer, node }))
            });
            // The least name; among layers that both contain it the topmost, which comes first.
            let below = below.min_by(|(one, _), (other, _)| one.cmp(other));
            match (here, below) {
                (None, None) => return Ok(None),
                (Some((name, entry)), below) if below.is_none_or(|(lower, _)| name <= lower) => match entry {
                    Entry::Whiteout => after = Some(name),
                    Entry::Node(id) => {
                        let node = self.nodes.get(*id)?;
                        let (ino, file_type) = (node.ino, node.kind.file_type());
                        return Ok(Some(MergedEntry { name: name.clone(), ino, file_type }));
                    }
                },
                (_, Some((name, at))) => {
                    let node = self.layers.get(at.layer as usize).and_then(|layer| layer.node(at.node));
                    let file_type = match node.ok_or(Errno::EIO)?.kind {
                        LayerKind::File(_) | LayerKind::Deferred(_) => FileType::Regular,
                        LayerKind::Directory(_) => FileType::Directory,
                        LayerKind::Link(_) => FileType::Link,
                    };
                    return Ok(Some(MergedEntry { name: name.clone(), ino: lower_ino(at), file_type }));
                }
                // Unreachable: an entry of this directory without one from below satisfies the guard above.
                (Some(_), None) => return Ok(None),
            }
        }
    }

    /// Returns whether `directory` has no entries.
    pub(super) fn is_empty(&self, directory: NodeId) -> Result<bool, Errno> {
        Ok(self.next_entry(directory, None)?.is_none())
    }
}

/// Returns the inode number of a file in a layer. Private inodes have lower numbers.
pub(super) fn lower_ino(at: LowerDirectory) -> u64 {
    (u64::from(at.layer) + 1) << 32 | u64::from(at.node)
}
