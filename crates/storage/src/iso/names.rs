//! Names of a directory's entries in the two trees.

use std::collections::BTreeSet;

use super::{Child, Target};

/// Joliet's limit, in UCS-2 units.
const JOLIET_NAME: usize = 64;

/// `NAME.EXT;1` in capitals for readers that know neither extension, unique in the directory.
pub(crate) fn primary(children: &[Child]) -> Vec<Vec<u8>> {
    let mut taken = BTreeSet::new();
    children.iter().map(|child| primary_name(child, &mut taken).into_bytes()).collect()
}

fn primary_name(child: &Child, taken: &mut BTreeSet<String>) -> String {
    let clean = |text: &str, most: usize| -> String {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        text.chars().take(most).map(letter).collect()
    };
    let is_file = matches!(child.target, Target::File(_));
    let (stem, extension) = match child.name.rsplit_once('.') {
        Some((stem, extension)) if is_file && !stem.is_empty() => (stem, extension),
        _ => (child.name.as_str(), ""),
    };
    let (stem, extension) = (clean(stem, 8), clean(extension, 3));
    let whole = |stem: &str| if is_file { format!("{stem}.{extension};1") } else { stem.to_owned() };
    unique(taken, whole(&stem), |tail| whole(&format!("{}{tail}", &stem[..stem.len().min(8 - tail.len())])))
}

/// The name in UCS-2, cut where it is too long, unique in the directory.
pub(crate) fn joliet(children: &[Child]) -> Vec<Vec<u8>> {
    let mut taken = BTreeSet::new();
    children.iter().map(|child| ucs2(&joliet_name(child, &mut taken))).collect()
}

fn joliet_name(child: &Child, taken: &mut BTreeSet<String>) -> String {
    let allowed = |c: char| if c.is_control() || "*/:;?\\".contains(c) || c.len_utf16() > 1 { '_' } else { c };
    let clean: Vec<char> = child.name.chars().map(allowed).collect();
    let version = if matches!(child.target, Target::File(_)) { ";1" } else { "" };
    let whole = |most: usize, tail: &str| {
        clean.iter().take(most).chain(&tail.chars().collect::<Vec<_>>()).collect::<String>() + version
    };
    unique(taken, whole(JOLIET_NAME, ""), |tail| whole(JOLIET_NAME - tail.len(), tail))
}

/// `first`, or else the first of `numbered("0")`, `numbered("1")`, … that nobody has.
fn unique(taken: &mut BTreeSet<String>, first: String, numbered: impl Fn(&str) -> String) -> String {
    let mut name = first;
    let mut number = 0_u32;
    while !taken.insert(name.clone()) {
        name = numbered(&number.to_string());
        number += 1;
    }
    name
}

/// Big-endian UCS-2.
pub(crate) fn ucs2(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_be_bytes).collect()
}
