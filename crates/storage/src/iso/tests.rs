//! Media as `xorriso` reads them, which knows both extensions; the kernel of a guest reads them in the black-box suite.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;

/// The files of an image as `xorriso` reads them: `read_fs` chooses the extensions that it may use.
fn extracted(image: &[u8], read_fs: &str) -> BTreeMap<String, Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("image.iso");
    fs::write(&file, image).unwrap();
    let root = directory.path().join("files");
    let output = Command::new("xorriso")
        .args(["-abort_on", "WARNING", "-read_fs", read_fs, "-osirrox", "on", "-indev"])
        .arg(&file)
        .args(["-extract", "/"])
        .arg(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "xorriso: {}", String::from_utf8_lossy(&output.stderr));
    let mut files = BTreeMap::new();
    collect(&root, "", &mut files);
    files
}

fn collect(directory: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), &format!("{name}/"), files);
        } else {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

fn image(label: &str, files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Medium::new(label, files).unwrap().write(&mut bytes).unwrap();
    bytes
}

fn of(files: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
    files.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect()
}

/// Every shape at once: nested, empty, over a sector, names that are long, equal in capitals, or need a second NM entry.
fn hard() -> BTreeMap<String, Vec<u8>> {
    let mut files = of(&[
        ("user-data", b"#cloud-config\n"),
        ("User-Data", b"another"),
        ("empty", b""),
        ("openstack/latest/meta_data.json", b"{}"),
        ("openstack/content/0000", b"x"),
        ("a/b/c/d/e/f/g/deep", b"deep"),
        (".hidden", b"dot"),
        ("grüße.txt", b"utf-8"),
    ]);
    files.insert("l".repeat(170), b"long".to_vec());
    files.insert("m".repeat(253), b"longest".to_vec());
    files.insert("large".into(), (0..100_000_u32).flat_map(u32::to_le_bytes).collect());
    for number in 0..200 {
        files.insert(format!("many/file-with-a-name-{number:03}.conf"), format!("{number}").into_bytes());
    }
    files
}

#[test]
fn linux_sees_every_file_through_rock_ridge() {
    let files = hard();
    assert_eq!(extracted(&image("cidata", &files), "nojoliet"), files);
}

#[test]
fn joliet_has_the_same_files_with_names_cut_at_64() {
    let mut files = hard();
    let seen = extracted(&image("cfgdata", &files), "norock");
    for letter in ["l", "m"] {
        let long = if letter == "l" { 170 } else { 253 };
        let content = files.remove(&letter.repeat(long)).unwrap();
        files.insert(letter.repeat(64), content);
    }
    assert_eq!(seen, files);
}

#[test]
fn without_extensions_names_are_short_and_unique() {
    let names = ["user-data", "user-date", "autounattend.xml", ".hidden", "a.b.conf"];
    let mut children: Vec<Child> =
        names.iter().map(|name| Child { name: (*name).to_owned(), target: Target::File(0) }).collect();
    children.push(Child { name: "directory.d".into(), target: Target::Directory(1) });
    let short: Vec<_> = names::primary(&children).into_iter().map(|name| String::from_utf8(name).unwrap()).collect();
    let expected = ["USER_DAT.;1", "USER_DA0.;1", "AUTOUNAT.XML;1", "_HIDDEN.;1", "A_B.CON;1", "DIRECTOR"];
    assert_eq!(short, expected);
}

#[test]
fn the_label_is_what_a_guest_looks_for() {
    for label in ["cidata", "config-2", "unattendCD"] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("image.iso");
        fs::write(&file, image(label, &of(&[("a", b"b")]))).unwrap();
        let output = Command::new("blkid").args(["-p", "-s", "LABEL", "-o", "value"]).arg(&file).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), label);
    }
}

#[test]
fn equal_files_make_equal_media() {
    assert_eq!(image("cidata", &hard()), image("cidata", &hard()));
}

#[test]
fn an_empty_medium_is_readable() {
    assert!(extracted(&image("nothing", &BTreeMap::new()), "any").is_empty());
}

#[test]
fn what_does_not_fit_is_named() {
    let problem = |label: &str, files: &BTreeMap<String, Vec<u8>>| Medium::new(label, files).unwrap_err();
    assert_eq!(problem("", &BTreeMap::new()), MediumProblem::Label(String::new()));
    assert_eq!(problem("l", &of(&[("1/2/3/4/5/6/7/8/9", b"")])), MediumProblem::TooDeep);
    assert_eq!(problem("l", &of(&[("a/../b", b"")])), MediumProblem::Name("a/../b".into()));
    assert_eq!(problem("l", &of(&[("a", b""), ("a/b", b"")])), MediumProblem::Name("a/b".into()));
    let many = (0..=MAX_FILES).map(|number| (number.to_string(), Vec::new())).collect();
    assert_eq!(problem("l", &many), MediumProblem::TooManyFiles);
    let large = BTreeMap::from([("large".to_owned(), vec![0; MAX_TOTAL as usize + 1])]);
    assert_eq!(problem("l", &large), MediumProblem::TooLarge);
}

proptest! {
    #[test]
    fn any_names_make_whole_sectors(
        files in proptest::collection::btree_map("([a-zA-Z.ü;*_ -]{1,80}/){0,3}.{1,120}", "[a-z]{0,5000}".prop_map(String::into_bytes), 0..40),
    ) {
        if let Ok(medium) = Medium::new("cidata", &files) {
            let mut bytes = Vec::new();
            medium.write(&mut bytes).unwrap();
            prop_assert_eq!(bytes.len() % SECTOR, 0);
            let told = u32::from_le_bytes(bytes[16 * SECTOR + 80..16 * SECTOR + 84].try_into().unwrap());
            prop_assert_eq!(told as usize * SECTOR, bytes.len());
        }
    }
}
