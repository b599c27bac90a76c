//! The bytes of an ISO 9660 image: descriptors, path tables, directory records, and Rock Ridge's entries in them.

use super::names;
use super::{Child, Directory, Target};

/// Bytes of a logical sector.
pub(crate) const SECTOR: usize = 2048;
/// A directory record is at most this long: its length is a byte, and even.
const MAX_RECORD: usize = 254;
/// Bytes of a directory record before the name.
const RECORD_HEAD: usize = 33;
/// Length of a CE entry, which says where the rest of the entries is.
const CE_LENGTH: usize = 28;
/// Length of a PX entry as of Rock Ridge 1.09.
const PX_LENGTH: usize = 36;
/// A name longer than this is continued in a further NM entry.
const NM_PIECE: usize = 248;
/// 1 January 2000 in a directory record. Constant, so that equal files make equal media.
const RECORD_DATE: [u8; 7] = [100, 1, 1, 0, 0, 0, 0];
/// The same in a volume descriptor.
const VOLUME_DATE: &[u8; 17] = b"2000010100000000\0";
/// No date.
const NO_DATE: &[u8; 17] = b"0000000000000000\0";
/// Joliet, level 3.
const JOLIET_ESCAPE: &[u8] = b"%/E";

/// Sectors that `bytes` take.
pub(crate) fn sectors(bytes: usize) -> u32 {
    bytes.div_ceil(SECTOR) as u32
}

/// Where something is on the medium.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    pub(crate) sector: u32,
    pub(crate) size: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavour {
    Primary,
    Joliet,
}

/// One entry of a directory, ready but for the places of things.
#[derive(Debug)]
struct Entry {
    identifier: Vec<u8>,
    target: Target,
    system_use: SystemUse,
}

/// Rock Ridge's entries of a record, and what did not fit into it: offset and length in the continuation area.
#[derive(Debug, Default)]
struct SystemUse {
    inline: Vec<u8>,
    continued: Option<(usize, usize)>,
}

impl SystemUse {
    fn length(&self) -> usize {
        self.inline.len() + if self.continued.is_some() { CE_LENGTH } else { 0 }
    }
}

/// One of the two directory trees with the place of everything in it.
#[derive(Debug)]
pub(crate) struct Placed<'a> {
    flavour: Flavour,
    tree: &'a [Directory],
    /// Directories in the order of the path table.
    order: Vec<usize>,
    /// Their identifiers, by directory.
    identifiers: Vec<Vec<u8>>,
    /// Their entries, sorted, by directory.
    entries: Vec<Vec<Entry>>,
    extents: Vec<Extent>,
    path_table: [u32; 2],
    continuation_sector: u32,
    continuation: Vec<u8>,
}

impl<'a> Placed<'a> {
    /// The tree with short names and Rock Ridge.
    pub(crate) fn primary(tree: &'a [Directory]) -> Self {
        Self::new(Flavour::Primary, tree)
    }

    /// The tree with UCS-2 names.
    pub(crate) fn joliet(tree: &'a [Directory]) -> Self {
        Self::new(Flavour::Joliet, tree)
    }

    fn new(flavour: Flavour, tree: &'a [Directory]) -> Self {
        let mut placed = Self {
            flavour,
            tree,
            order: Vec::new(),
            identifiers: vec![vec![0]; tree.len()],
            entries: Vec::new(),
            extents: Vec::new(),
            path_table: [0; 2],
            continuation_sector: 0,
            continuation: Vec::new(),
        };
        for directory in tree {
            let entries = placed.entries_of(directory);
            for entry in &entries {
                if let Target::Directory(number) = entry.target {
                    placed.identifiers[number].clone_from(&entry.identifier);
                }
            }
            placed.entries.push(entries);
        }
        placed.order = placed.path_table_order();
        placed.continuation.resize(sectors(placed.continuation.len()) as usize * SECTOR, 0);
        placed
    }

    fn entries_of(&mut self, directory: &Directory) -> Vec<Entry> {
        let identifiers = match self.flavour {
            Flavour::Primary => names::primary(&directory.children),
            Flavour::Joliet => names::joliet(&directory.children),
        };
        let mut entries: Vec<Entry> = Vec::new();
        for (identifier, child) in identifiers.into_iter().zip(&directory.children) {
            let system_use = match self.flavour {
                Flavour::Primary => self.rock_ridge(identifier.len(), child),
                Flavour::Joliet => SystemUse::default(),
            };
            entries.push(Entry { identifier, target: child.target, system_use });
        }
        entries.sort_by(|a, b| a.identifier.cmp(&b.identifier));
        entries
    }

    /// Mode and name of an entry. A name that does not fit goes to the continuation area, which no entry crosses a sector of.
    fn rock_ridge(&mut self, identifier: usize, child: &Child) -> SystemUse {
        let mut inline = px(self.tree, child.target);
        let name = nm(&child.name);
        if padded(RECORD_HEAD + identifier) + inline.len() + name.len() <= MAX_RECORD {
            inline.extend(name);
            return SystemUse { inline, continued: None };
        }
        let used = self.continuation.len() % SECTOR;
        if used + name.len() > SECTOR {
            self.continuation.resize(self.continuation.len() + SECTOR - used, 0);
        }
        let continued = Some((self.continuation.len(), name.len()));
        self.continuation.extend(name);
        SystemUse { inline, continued }
    }

    /// By level, then by the parent's place, then by name. Parents come before children, so one pass finds their place.
    fn path_table_order(&self) -> Vec<usize> {
        let mut order = vec![0];
        let mut at = 0;
        while at < order.len() {
            let below = self.entries[order[at]].iter().filter_map(|entry| match entry.target {
                Target::Directory(number) => Some(number),
                Target::File(_) => None,
            });
            order.extend(below);
            at += 1;
        }
        order
    }

    /// Takes sectors for the little-endian and the big-endian path table.
    pub(crate) fn place_path_tables(&mut self, next: &mut u32) {
        for place in 0..2 {
            self.path_table[place] = *next;
            *next += sectors(self.path_table_size());
        }
    }

    fn path_table_size(&self) -> usize {
        self.identifiers.iter().map(|identifier| padded(8 + identifier.len())).sum()
    }

    /// Takes sectors for the directories.
    pub(crate) fn place_directories(&mut self, next: &mut u32) {
        self.extents = vec![Extent::default(); self.tree.len()];
        for &number in &self.order {
            let size = self.directory_size(number);
            self.extents[number] = Extent { sector: *next, size: size as u32 };
            *next += sectors(size);
        }
    }

    /// Takes sectors for long names.
    pub(crate) fn place_continuations(&mut self, next: &mut u32) {
        self.continuation_sector = *next;
        *next += sectors(self.continuation.len());
    }

    /// Long names.
    pub(crate) fn continuations(&self) -> &[u8] {
        &self.continuation
    }

    /// Both path tables, each padded to a sector.
    pub(crate) fn path_tables(&self) -> Vec<u8> {
        let place = |number: usize| self.order.iter().position(|&other| other == number).unwrap_or(0) + 1;
        let mut both = Vec::new();
        for big_endian in [false, true] {
            for &number in &self.order {
                let identifier = &self.identifiers[number];
                let parent = place(self.tree[number].parent) as u16;
                let sector = self.extents[number].sector;
                both.extend([identifier.len() as u8, 0]);
                both.extend(if big_endian { sector.to_be_bytes() } else { sector.to_le_bytes() });
                both.extend(if big_endian { parent.to_be_bytes() } else { parent.to_le_bytes() });
                both.extend(identifier);
                both.resize(both.len() + identifier.len() % 2, 0);
            }
            both.resize(sectors(both.len()) as usize * SECTOR, 0);
        }
        both
    }

    /// Bytes of a directory: whole sectors, because records do not cross them.
    fn directory_size(&self, number: usize) -> usize {
        let mut size = self.dots(number).iter().map(Vec::len).sum::<usize>();
        for entry in &self.entries[number] {
            let length = padded(padded(RECORD_HEAD + entry.identifier.len()) + entry.system_use.length());
            if size % SECTOR + length > SECTOR {
                size = size.next_multiple_of(SECTOR);
            }
            size += length;
        }
        size.next_multiple_of(SECTOR)
    }

    /// All directories in the order of their places.
    pub(crate) fn directories(&self, files: &[Extent]) -> Vec<u8> {
        let mut all = Vec::new();
        for &number in &self.order {
            for record in self.dots(number).into_iter().chain(self.entry_records(number, files)) {
                if all.len() % SECTOR + record.len() > SECTOR {
                    all.resize(all.len().next_multiple_of(SECTOR), 0);
                }
                all.extend(record);
            }
            all.resize(all.len().next_multiple_of(SECTOR), 0);
        }
        all
    }

    fn entry_records(&self, number: usize, files: &[Extent]) -> impl Iterator<Item = Vec<u8>> {
        self.entries[number].iter().map(|entry| {
            let (extent, is_directory) = match entry.target {
                Target::Directory(number) => (self.extents[number], true),
                Target::File(number) => (files[number], false),
            };
            let mut system_use = entry.system_use.inline.clone();
            if let Some((offset, length)) = entry.system_use.continued {
                let sector = self.continuation_sector + (offset / SECTOR) as u32;
                system_use.extend(ce(sector, (offset % SECTOR) as u32, length as u32));
            }
            record(&entry.identifier, extent, is_directory, &system_use)
        })
    }

    /// The records of a directory for itself and for its parent.
    fn dots(&self, number: usize) -> [Vec<u8>; 2] {
        let extent = |number: usize| self.extents.get(number).copied().unwrap_or_default();
        let parent = self.tree[number].parent;
        let (mut own, mut above) = (Vec::new(), Vec::new());
        if self.flavour == Flavour::Primary {
            if number == 0 {
                own.extend(*b"SP\x07\x01\xbe\xef\x00");
            }
            own.extend(px(self.tree, Target::Directory(number)));
            if number == 0 {
                own.extend(er());
            }
            above.extend(px(self.tree, Target::Directory(parent)));
        }
        [record(&[0], extent(number), true, &own), record(&[1], extent(parent), true, &above)]
    }
}

/// The next even number.
fn padded(length: usize) -> usize {
    length.next_multiple_of(2)
}

fn both_endian_16(value: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (value.to_le_bytes(), value.to_be_bytes());
    [a, b, c, d]
}

fn both_endian(value: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&value.to_le_bytes());
    bytes[4..].copy_from_slice(&value.to_be_bytes());
    bytes
}

/// A directory record.
fn record(identifier: &[u8], extent: Extent, is_directory: bool, system_use: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0];
    bytes.extend(both_endian(extent.sector));
    bytes.extend(both_endian(extent.size));
    bytes.extend(RECORD_DATE);
    bytes.extend([if is_directory { 2 } else { 0 }, 0, 0]);
    bytes.extend(both_endian_16(1));
    bytes.push(identifier.len() as u8);
    bytes.extend(identifier);
    bytes.resize(padded(bytes.len()), 0);
    bytes.extend(system_use);
    bytes.resize(padded(bytes.len()), 0);
    bytes[0] = bytes.len() as u8;
    bytes
}

/// Rock Ridge: mode, links, owner. Everybody may read, nobody may write.
fn px(tree: &[Directory], target: Target) -> Vec<u8> {
    let (mode, links) = match target {
        Target::File(_) => (0o100_444, 1),
        Target::Directory(number) => {
            let below = tree[number].children.iter().filter(|child| matches!(child.target, Target::Directory(_)));
            (0o040_555, 2 + below.count() as u32)
        }
    };
    let mut bytes = vec![b'P', b'X', PX_LENGTH as u8, 1];
    for value in [mode, links, 0, 0] {
        bytes.extend(both_endian(value));
    }
    bytes
}

/// Rock Ridge: the name, in one entry or two.
fn nm(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut pieces = name.as_bytes().chunks(NM_PIECE).peekable();
    while let Some(piece) = pieces.next() {
        let goes_on = u8::from(pieces.peek().is_some());
        bytes.extend([b'N', b'M', 5 + piece.len() as u8, 1, goes_on]);
        bytes.extend(piece);
    }
    bytes
}

/// Where the entries of a record go on.
fn ce(sector: u32, offset: u32, length: u32) -> Vec<u8> {
    let mut bytes = vec![b'C', b'E', CE_LENGTH as u8, 1];
    for value in [sector, offset, length] {
        bytes.extend(both_endian(value));
    }
    bytes
}

/// Says that the entries are Rock Ridge's.
fn er() -> Vec<u8> {
    let identifier = b"RRIP_1991A";
    let mut bytes = vec![b'E', b'R', 8 + identifier.len() as u8, 1, identifier.len() as u8, 0, 0, 1];
    bytes.extend(identifier);
    bytes
}

/// A volume descriptor of one sector.
pub(crate) fn descriptor(tree: &Placed<'_>, label: &str, sectors: u32) -> Vec<u8> {
    let joliet = tree.flavour == Flavour::Joliet;
    let text = |text: &str, length: usize| -> Vec<u8> {
        let (mut bytes, blank) =
            if joliet { (names::ucs2(text), vec![0, b' ']) } else { (text.as_bytes().to_vec(), vec![b' ', b' ']) };
        bytes.truncate(length - length % 2);
        while bytes.len() < length {
            bytes.extend(&blank);
        }
        bytes.truncate(length);
        bytes
    };
    let mut bytes = vec![if joliet { 2 } else { 1 }];
    bytes.extend(b"CD001\x01\0");
    bytes.extend(text("LINUX", 32));
    bytes.extend(text(label, 32));
    bytes.extend([0; 8]);
    bytes.extend(both_endian(sectors));
    bytes.extend(if joliet { JOLIET_ESCAPE } else { &[] });
    bytes.resize(120, 0);
    bytes.extend(both_endian_16(1));
    bytes.extend(both_endian_16(1));
    bytes.extend(both_endian_16(SECTOR as u16));
    bytes.extend(both_endian(tree.path_table_size() as u32));
    bytes.extend(tree.path_table[0].to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend(tree.path_table[1].to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(record(&[0], tree.extents[0], true, &[]));
    for (value, length) in [("", 128), ("", 128), ("", 128), ("FERROVIRT", 128), ("", 37), ("", 37), ("", 37)] {
        bytes.extend(text(value, length));
    }
    for date in [VOLUME_DATE, VOLUME_DATE, NO_DATE, NO_DATE] {
        bytes.extend(date);
    }
    bytes.push(1);
    bytes.resize(SECTOR, 0);
    bytes
}

/// The end of the descriptors.
pub(crate) fn terminator() -> Vec<u8> {
    let mut bytes = b"\xffCD001\x01".to_vec();
    bytes.resize(SECTOR, 0);
    bytes
}
