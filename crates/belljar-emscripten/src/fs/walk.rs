//! From paths to inodes: component by component, as POSIX's pathname resolution says.
//!
//! `..` means the parent of the directory that was reached, not the path with its last component cut off. The walk
//! keeps what is left of the path, with the targets of symbolic links pushed in front of it; it does not recurse.

use std::sync::Arc;

use super::node::{Kind, NodeId, ROOT};
use super::{AT_FDCWD, Filesystem, NAME_MAX, PATH_MAX};
use crate::Errno;

/// Symbolic links followed in one walk, as on Linux and in Emscripten.
const LINK_LIMIT: u32 = 40;

/// Something that a path can lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// An inode of ours.
    Node(NodeId),
    /// Something in a mounted host directory, by its path from that directory's root, which is "". Every component
    /// but the last was seen to be a directory and not a link.
    Host { mount: u32, path: String },
}

/// The last component of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Last {
    Name(String),
    Root,
    Dot,
    DotDot,
}

/// Where a path leads.
#[derive(Debug, Clone)]
pub(super) struct Located {
    /// The directory that has, or would have, the last component.
    pub(super) parent: Place,
    pub(super) last: Last,
    pub(super) found: Option<Place>,
    /// Whether the path ends in a slash and so can only mean a directory.
    pub(super) slash: bool,
}

/// What of a path is still to be walked.
struct Remaining {
    /// The first to be walked comes last.
    segments: Vec<Segment>,
}

struct Segment {
    text: Arc<str>,
    /// Where the next component starts; there always is one.
    at: usize,
    /// Whether this is the target of a link in a mounted host directory.
    of_host: bool,
}

impl Remaining {
    /// Walks `text` before what is left so far.
    fn push(&mut self, text: Arc<str>, of_host: bool) {
        let at = text.len() - text.trim_start_matches('/').len();
        if at < text.len() {
            self.segments.push(Segment { text, at, of_host });
        }
    }

    /// The next component, and whether it comes from a link in a host directory.
    fn next(&mut self) -> Option<(String, bool)> {
        let segment = self.segments.last_mut()?;
        let rest = segment.text.get(segment.at..).unwrap_or_default();
        let (name, behind) = rest.split_once('/').unwrap_or((rest, ""));
        let next = (name.to_owned(), segment.of_host);
        // Slashes are skipped now, so that what is left is never slashes alone.
        segment.at = segment.text.len() - behind.trim_start_matches('/').len();
        if segment.at == segment.text.len() {
            self.segments.pop();
        }
        Some(next)
    }

    fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

impl Filesystem {
    /// Where a relative path starts.
    pub(super) fn base(&self, dirfd: i32, path: &str) -> Result<Place, Errno> {
        if path.starts_with('/') {
            return Ok(Place::Node(ROOT));
        }
        if dirfd == AT_FDCWD {
            return Ok(self.working_directory.clone());
        }
        self.place_of(dirfd)
    }

    /// Walks `path` from `base`. A symbolic link in the last component is followed if `follow` says so.
    ///
    /// All but the last component must exist.
    pub(super) fn locate(&mut self, base: Place, path: &str, follow: bool) -> Result<Located, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let absolute = path.starts_with('/');
        let mut current = if absolute { Place::Node(ROOT) } else { base };
        let mut last = if absolute { Last::Root } else { Last::Dot };
        let mut slash = path.ends_with('/');
        let mut links = 0;
        let mut remaining = Remaining { segments: Vec::new() };
        remaining.push(path.into(), false);
        while let Some((name, of_host)) = remaining.next() {
            self.may_search(&current)?;
            match name.as_str() {
                "." => last = Last::Dot,
                ".." => {
                    current = self.parent_of(&current, of_host)?;
                    last = Last::DotDot;
                }
                name if name.len() > NAME_MAX => return Err(Errno::ENAMETOOLONG),
                name => {
                    let at_end = remaining.is_empty();
                    let Some(found) = self.look_up(&current, name)? else {
                        if at_end {
                            return Ok(Located { parent: current, last: Last::Name(name.into()), found: None, slash });
                        }
                        return Err(Errno::ENOENT);
                    };
                    let target = if !at_end || follow { self.link_target(&found)? } else { None };
                    if let Some(target) = target {
                        links += 1;
                        if links > LINK_LIMIT {
                            return Err(Errno::ELOOP);
                        }
                        slash |= at_end && target.ends_with('/');
                        let of_host = matches!(found, Place::Host { .. });
                        if target.starts_with('/') {
                            // A host's absolute path means nothing here, and must not be taken for one of the guest's.
                            if of_host {
                                return Err(Errno::EACCES);
                            }
                            current = Place::Node(ROOT);
                            last = Last::Root;
                        }
                        remaining.push(target, of_host);
                        continue;
                    }
                    if at_end {
                        let last = Last::Name(name.into());
                        return Ok(Located { parent: current, last, found: Some(found), slash });
                    }
                    current = found;
                }
            }
        }
        Ok(Located { parent: current.clone(), last, found: Some(current), slash })
    }

    /// What `path` leads to. [`Errno::ENOENT`] when that is nothing.
    pub(super) fn resolve(&mut self, dirfd: i32, path: &str, follow: bool) -> Result<Place, Errno> {
        let base = self.base(dirfd, path)?;
        // With a slash behind it, even `lstat` looks at what a link points to.
        let located = self.locate(base, path, follow || path.ends_with('/'))?;
        let place = located.found.ok_or(Errno::ENOENT)?;
        if located.slash && !self.is_directory(&place)? {
            return Err(Errno::ENOTDIR);
        }
        Ok(place)
    }

    pub(super) fn is_directory(&mut self, place: &Place) -> Result<bool, Errno> {
        match place {
            Place::Node(id) => Ok(matches!(self.nodes.get(*id)?.kind, Kind::Directory(_))),
            Place::Host { mount, path } => Ok(self.mounted(*mount)?.is_directory(path)?),
        }
    }

    fn may_search(&mut self, place: &Place) -> Result<(), Errno> {
        match place {
            Place::Node(id) => {
                self.nodes.directory(*id)?;
                self.check_mode(*id, 0o111)
            }
            Place::Host { .. } if self.is_directory(place)? => Ok(()),
            Place::Host { .. } => Err(Errno::ENOTDIR),
        }
    }

    fn parent_of(&mut self, place: &Place, of_host: bool) -> Result<Place, Errno> {
        match place {
            Place::Node(id) => {
                let node = self.nodes.get(*id)?;
                if node.linked { Ok(Place::Node(node.parent)) } else { Err(Errno::ENOENT) }
            }
            // A link of the host that leads out of what was mounted.
            Place::Host { path, .. } if path.is_empty() && of_host => Err(Errno::EACCES),
            Place::Host { mount, path } if path.is_empty() => {
                let at = self.mounts.get(*mount as usize).ok_or(Errno::EIO)?.at;
                self.parent_of(&Place::Node(at), false)
            }
            Place::Host { mount, path } => {
                let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
                Ok(Place::Host { mount: *mount, path: parent.into() })
            }
        }
    }

    fn look_up(&mut self, directory: &Place, name: &str) -> Result<Option<Place>, Errno> {
        match directory {
            Place::Node(id) => {
                let Some(child) = self.child(*id, name)? else { return Ok(None) };
                let mount = match &self.nodes.get(child)?.kind {
                    Kind::Directory(directory) => directory.mount,
                    _ => None,
                };
                Ok(Some(match mount {
                    Some(mount) => Place::Host { mount, path: String::new() },
                    None => Place::Node(child),
                }))
            }
            Place::Host { mount, path } => {
                let path = join(path, name);
                let exists = self.mounted(*mount)?.exists(&path)?;
                Ok(exists.then_some(Place::Host { mount: *mount, path }))
            }
        }
    }

    /// Where a symbolic link points; `None` for anything else.
    fn link_target(&mut self, place: &Place) -> Result<Option<Arc<str>>, Errno> {
        match place {
            Place::Node(id) => match &self.nodes.get(*id)?.kind {
                Kind::Link(target) => Ok(Some(target.clone())),
                _ => Ok(None),
            },
            Place::Host { mount, path } => self.mounted(*mount)?.link_target(path),
        }
    }

    /// Refuses when none of `bits` is set in the inode's mode.
    pub(super) fn check_mode(&self, id: NodeId, bits: u32) -> Result<(), Errno> {
        if self.enforcing && self.nodes.get(id)?.mode & bits == 0 { Err(Errno::EACCES) } else { Ok(()) }
    }

    /// The path of a directory from the root. [`Errno::ENOENT`] when it was removed, [`Errno::ENAMETOOLONG`] when the
    /// path would have more than `limit` bytes.
    pub(super) fn path_of(&self, place: &Place, limit: usize) -> Result<String, Errno> {
        let (mut id, below) = match place {
            Place::Node(id) => (*id, None),
            Place::Host { mount, path } => {
                let at = self.mounts.get(*mount as usize).ok_or(Errno::EIO)?.at;
                (at, Some(path.as_str()).filter(|path| !path.is_empty()))
            }
        };
        let mut names: Vec<&str> = below.into_iter().collect();
        let mut length: usize = names.iter().map(|name| name.len() + 1).sum();
        while id != ROOT {
            let node = self.nodes.get(id)?;
            if !node.linked {
                return Err(Errno::ENOENT);
            }
            length += node.name.len() + 1;
            if length > limit {
                return Err(Errno::ENAMETOOLONG);
            }
            names.push(&node.name);
            id = node.parent;
        }
        names.reverse();
        Ok(format!("/{}", names.join("/")))
    }
}

/// `name` in the host directory at `path`.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}
