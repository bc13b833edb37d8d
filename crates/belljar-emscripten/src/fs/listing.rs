//! Listing open directories.

use std::sync::Arc;

use super::descriptors::Target;
use super::mount::MountedEntry;
use super::node::{FileType, NodeId};
use super::path_resolution::PathTarget;
use super::{Filesystem, Stat};
use crate::Errno;

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name.
    pub name: Arc<str>,
    /// `d_ino`.
    pub ino: u64,
    /// The type of the file.
    pub file_type: FileType,
    /// The directory's offset after this entry.
    pub next: u64,
}

impl Filesystem {
    /// Returns the next entries of an open directory, `.` and `..` first, at most `limit`, and advances the offset.
    /// Returns no entries at the end.
    ///
    /// Entries are sorted by name, and listing continues after the name where it stopped: a file that exists throughout
    /// is listed exactly once, even if others are created or removed meanwhile.
    pub fn read_directory(&mut self, fd: i32, limit: usize) -> Result<Vec<DirectoryEntry>, Errno> {
        let description = self.description(fd)?;
        let mut offset = description.offset;
        let mut entries = Vec::new();
        let (here, above) = match &description.target {
            Target::Node(id) => {
                let directory = self.nodes.get(*id)?;
                self.nodes.directory(*id)?;
                let above = self.nodes.get(if directory.linked { directory.parent } else { *id })?;
                (directory.ino, above.ino)
            }
            Target::HostDirectory { mount, path, .. } => {
                let place = PathTarget::Host { mount: *mount, path: path.clone() };
                let Stat { ino, .. } = self.stat_place(&place)?;
                (ino, ino)
            }
            Target::HostFile { .. } | Target::Socket(_) => return Err(Errno::ENOTDIR),
        };
        for (position, name, ino) in [(0, ".", here), (1, "..", above)] {
            if offset == position && entries.len() < limit {
                offset += 1;
                entries.push(DirectoryEntry { name: name.into(), ino, file_type: FileType::Directory, next: offset });
            }
        }
        if let Target::Node(id) = self.description(fd)?.target {
            self.list_node(fd, id, offset, limit, &mut entries)?;
        } else {
            let listing = self.host_listing(fd)?;
            let skipped = usize::try_from(offset.saturating_sub(2)).unwrap_or(usize::MAX);
            for entry in listing.iter().skip(skipped).take(limit.saturating_sub(entries.len())) {
                offset += 1;
                let (name, ino, file_type) = (entry.name.clone(), entry.ino, entry.file_type);
                entries.push(DirectoryEntry { name, ino, file_type, next: offset });
            }
        }
        if let Some(last) = entries.last() {
            self.description_mut(fd)?.offset = last.next;
        }
        Ok(entries)
    }

    fn list_node(
        &mut self,
        fd: i32,
        id: NodeId,
        offset: u64,
        limit: usize,
        entries: &mut Vec<DirectoryEntry>,
    ) -> Result<(), Errno> {
        let mut offset = offset;
        let mut after = match &self.description(fd)?.listed {
            (stopped, name) if *stopped == offset => name.clone(),
            // The guest has changed the offset: count the entries up to it.
            _ => {
                let mut name = None;
                for _ in 2..offset {
                    let Some(entry) = self.next_entry(id, name.as_deref())? else { break };
                    name = Some(entry.name);
                }
                name
            }
        };
        while entries.len() < limit {
            let Some(entry) = self.next_entry(id, after.as_deref())? else { break };
            offset += 1;
            after = Some(entry.name.clone());
            entries.push(DirectoryEntry { name: entry.name, ino: entry.ino, file_type: entry.file_type, next: offset });
        }
        self.description_mut(fd)?.listed = (offset, after);
        Ok(())
    }

    /// Returns the entries of an open host directory at the time when it was first listed, or last rewound.
    fn host_listing(&mut self, fd: i32) -> Result<Arc<[MountedEntry]>, Errno> {
        let description = self.description(fd)?;
        let Target::HostDirectory { mount, path, listing } = &description.target else { return Err(Errno::ENOTDIR) };
        if let Some(listing) = listing.as_ref().filter(|_| description.offset != 0) {
            return Ok(listing.clone());
        }
        let fresh: Arc<[MountedEntry]> = self.mounted(*mount)?.list(path)?.into();
        if let Target::HostDirectory { listing, .. } = &mut self.description_mut(fd)?.target {
            *listing = Some(fresh.clone());
        }
        Ok(fresh)
    }
}
