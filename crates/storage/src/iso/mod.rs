//! ISO 9660 images of a few files, with Rock Ridge (long names, modes: Linux) and Joliet (long names: Windows).
//!
//! The same files under the same label give the same bytes: dates are constant, and order follows from names. So a medium that is
//! made again, for example where a guest moves to, is the one that the guest has seen.
//!
//! ```text
//! sector 16      17        18         19 …
//! │ primary │ Joliet │ terminator │ path tables │ directories │ directories │ long names │ files …
//! │ descriptor       │            │ of both     │ primary     │ Joliet      │ (SUSP CE)  │
//! ```

mod names;
mod records;

use std::collections::BTreeMap;
use std::io::{self, Write};

use records::{Extent, Placed, SECTOR, descriptor, sectors, terminator};

/// Directories below each other; ECMA-119 allows eight levels.
pub const MAX_DEPTH: usize = 7;
/// More files than any config map or secret has keys.
pub const MAX_FILES: usize = 4096;
/// Bytes of all files. A projected volume is far smaller, and this much is held in memory for a moment.
pub const MAX_TOTAL: u64 = 32 << 20;
/// The first sector after the descriptors.
const FIRST_FREE: u32 = 19;

/// Why files do not fit on a medium.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediumProblem {
    /// See [`MAX_DEPTH`].
    #[error("directories are nested more than {MAX_DEPTH} levels deep: use fewer levels")]
    TooDeep,
    /// See [`MAX_FILES`].
    #[error("there are more than {MAX_FILES} files: use fewer keys")]
    TooManyFiles,
    /// See [`MAX_TOTAL`].
    #[error("the files are larger than {} MiB together: use a disk image for that much data", MAX_TOTAL >> 20)]
    TooLarge,
    /// No such name can be on a medium.
    #[error("the file name {0:?} cannot be used on a medium: rename it")]
    Name(String),
    /// A label is at most 32 bytes long.
    #[error("the volume label {0:?} is empty, has control characters or is longer than 32 bytes: choose a shorter one")]
    Label(String),
}

/// A directory of the medium; number 0 is the root.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    pub(crate) parent: usize,
    pub(crate) depth: usize,
    pub(crate) children: Vec<Child>,
}

/// An entry of a directory.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) target: Target,
}

/// What an entry is: the number of a directory or of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Directory(usize),
    File(usize),
}

/// A medium that is ready to be written.
#[derive(Debug)]
pub struct Medium<'a> {
    label: &'a str,
    directories: Vec<Directory>,
    files: Vec<&'a [u8]>,
}

impl<'a> Medium<'a> {
    /// A medium with this label and these files by their path (`openstack/latest/user_data`).
    pub fn new(label: &'a str, files: &'a BTreeMap<String, Vec<u8>>) -> Result<Self, MediumProblem> {
        if label.is_empty() || label.len() > 32 || label.chars().any(char::is_control) {
            return Err(MediumProblem::Label(label.to_owned()));
        }
        if files.len() > MAX_FILES {
            return Err(MediumProblem::TooManyFiles);
        }
        if files.values().map(|content| content.len() as u64).sum::<u64>() > MAX_TOTAL {
            return Err(MediumProblem::TooLarge);
        }
        let mut medium = Self { label, directories: vec![Directory::default()], files: Vec::new() };
        for (path, content) in files {
            medium.add(path, content)?;
        }
        Ok(medium)
    }

    fn add(&mut self, path: &str, content: &'a [u8]) -> Result<(), MediumProblem> {
        let refused = || MediumProblem::Name(path.to_owned());
        let mut directory = 0;
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            if part.is_empty() || part == "." || part == ".." || part.len() > 255 || part.contains('\0') {
                return Err(refused());
            }
            let known = self.directories[directory].children.iter().find(|child| child.name == part);
            directory = match (known.map(|child| child.target), parts.peek()) {
                (Some(Target::Directory(number)), Some(_)) => number,
                (None, Some(_)) => self.add_directory(directory, part)?,
                (None, None) => {
                    let target = Target::File(self.files.len());
                    self.files.push(content);
                    self.directories[directory].children.push(Child { name: part.to_owned(), target });
                    return Ok(());
                }
                (Some(_), _) => return Err(refused()),
            };
        }
        Err(refused())
    }

    fn add_directory(&mut self, parent: usize, name: &str) -> Result<usize, MediumProblem> {
        let (number, depth) = (self.directories.len(), self.directories[parent].depth + 1);
        if depth > MAX_DEPTH {
            return Err(MediumProblem::TooDeep);
        }
        let child = Child { name: name.to_owned(), target: Target::Directory(number) };
        self.directories[parent].children.push(child);
        self.directories.push(Directory { parent, depth, children: Vec::new() });
        Ok(number)
    }

    /// Writes the image.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut primary = Placed::primary(&self.directories);
        let mut joliet = Placed::joliet(&self.directories);
        let mut next = FIRST_FREE;
        primary.place_path_tables(&mut next);
        joliet.place_path_tables(&mut next);
        primary.place_directories(&mut next);
        joliet.place_directories(&mut next);
        primary.place_continuations(&mut next);
        let extents = self.place_files(&mut next);

        out.write_all(&vec![0; 16 * SECTOR])?;
        out.write_all(&descriptor(&primary, self.label, next))?;
        out.write_all(&descriptor(&joliet, self.label, next))?;
        out.write_all(&terminator())?;
        for tree in [&primary, &joliet] {
            out.write_all(&tree.path_tables())?;
        }
        for tree in [&primary, &joliet] {
            out.write_all(&tree.directories(&extents))?;
        }
        out.write_all(primary.continuations())?;
        for content in &self.files {
            out.write_all(content)?;
            out.write_all(&vec![0; sectors(content.len()) as usize * SECTOR - content.len()])?;
        }
        Ok(())
    }

    /// An empty file has no place: readers take sector 0 for none.
    fn place_files(&self, next: &mut u32) -> Vec<Extent> {
        let place = |content: &&[u8]| {
            let size = content.len() as u32;
            let extent = Extent { sector: if size == 0 { 0 } else { *next }, size };
            *next += sectors(content.len());
            extent
        };
        self.files.iter().map(place).collect()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
