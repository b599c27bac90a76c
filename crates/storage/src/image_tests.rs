//! Images by hand, by `qemu-img`, and at random.

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

use super::*;

/// A header of a qcow2 that [`inspect`] accepts: version 3, 64 KiB clusters, 1 GiB.
fn header() -> Vec<u8> {
    let mut head = vec![0; 512];
    head[..4].copy_from_slice(QCOW2_MAGIC);
    put(&mut head, 4, &3_u32.to_be_bytes());
    put(&mut head, 20, &16_u32.to_be_bytes());
    put(&mut head, 24, &(1_u64 << 30).to_be_bytes());
    put(&mut head, 36, &2_u32.to_be_bytes());
    put(&mut head, 40, &0x30000_u64.to_be_bytes());
    put(&mut head, 48, &0x10000_u64.to_be_bytes());
    put(&mut head, 56, &1_u32.to_be_bytes());
    put(&mut head, 96, &4_u32.to_be_bytes());
    put(&mut head, 100, &104_u32.to_be_bytes());
    head
}

fn put(head: &mut [u8], at: usize, field: &[u8]) {
    head[at..at + field.len()].copy_from_slice(field);
}

fn with(at: usize, field: &[u8]) -> Result<ImageInfo, ImageProblem> {
    let mut head = header();
    put(&mut head, at, field);
    inspect(&head, 0x40000)
}

#[test]
fn a_plain_qcow2_is_accepted() {
    assert_eq!(inspect(&header(), 0x40000), Ok(ImageInfo { format: ImageFormat::Qcow2, virtual_size: 1 << 30 }));
}

#[test]
fn anything_else_is_raw() {
    let info = inspect(b"\xeb\x63\x90 boot code", 512 << 20).unwrap();
    assert_eq!(info, ImageInfo { format: ImageFormat::Raw, virtual_size: 512 << 20 });
}

#[test]
fn each_problem_has_its_name() {
    let nonsense = |field, value| Err(ImageProblem::Nonsense { field, value });
    assert_eq!(inspect(b"", 0), Err(ImageProblem::Empty));
    assert_eq!(inspect(b"KDMV....", 9000), Err(ImageProblem::Foreign("VMDK")));
    assert_eq!(inspect(&header()[..50], 50), Err(ImageProblem::Truncated { what: "header" }));
    assert_eq!(inspect(&header(), 0x30000), Err(ImageProblem::Truncated { what: "L1 table" }));
    assert_eq!(with(4, &1_u32.to_be_bytes()), Err(ImageProblem::Version(1)));
    assert_eq!(with(20, &63_u32.to_be_bytes()), nonsense("cluster size (bits)", 63));
    assert_eq!(with(32, &1_u32.to_be_bytes()), Err(ImageProblem::Encrypted));
    assert_eq!(with(24, &u64::MAX.to_be_bytes()), Err(ImageProblem::TooLarge(u64::MAX)));
    assert_eq!(with(24, &0_u64.to_be_bytes()), nonsense("disk size", 0));
    assert_eq!(with(36, &1_u32.to_be_bytes()), nonsense("number of L1 entries", 1));
    assert_eq!(with(36, &u32::MAX.to_be_bytes()), nonsense("number of L1 entries", u64::from(u32::MAX)));
    assert_eq!(with(40, &u64::MAX.to_be_bytes()), nonsense("offset of a table", u64::MAX));
    assert_eq!(with(56, &u32::MAX.to_be_bytes()), Err(ImageProblem::Truncated { what: "reference count table" }));
    assert_eq!(with(72, &(1_u64 << 1).to_be_bytes()), Err(ImageProblem::MarkedCorrupt));
    assert_eq!(with(72, &(1_u64 << 2).to_be_bytes()), Err(ImageProblem::ExternalDataFile));
    assert_eq!(with(72, &(1_u64 << 40).to_be_bytes()), Err(ImageProblem::UnknownFeatures(1 << 40)));
    assert_eq!(with(96, &7_u32.to_be_bytes()), nonsense("width of reference counts", 7));
    assert_eq!(with(100, &8_u32.to_be_bytes()), nonsense("header length", 8));
}

#[test]
fn a_backing_file_is_named_without_control_characters() {
    let mut head = header();
    put(&mut head, 8, &300_u64.to_be_bytes());
    put(&mut head, 16, &5_u32.to_be_bytes());
    put(&mut head, 300, b"/a\n\x1bb");
    assert_eq!(inspect(&head, 0x40000), Err(ImageProblem::BackingFile(Some("/a\\n\\u{1b}b".into()))));
    put(&mut head, 8, &u64::MAX.to_be_bytes());
    assert_eq!(inspect(&head, 0x40000), Err(ImageProblem::BackingFile(None)));
}

fn qemu_img(directory: &Path, arguments: &[&str]) {
    let output = Command::new("qemu-img").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn inspected(directory: &Path, name: &str) -> Result<ImageInfo, ImageProblem> {
    let file = File::open(directory.join(name)).unwrap();
    inspect_file(&file, file.metadata().unwrap().len()).unwrap()
}

#[test]
fn images_of_qemu_img_are_seen_for_what_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let accepted = [
        ("v2", "compat=0.10"),
        ("v3", "compat=1.1"),
        ("extended", "extended_l2=on,cluster_size=128k"),
        ("small", "cluster_size=512"),
        ("large", "cluster_size=2M"),
        ("zstd", "compression_type=zstd"),
    ];
    for (name, options) in accepted {
        qemu_img(at, &["create", "-q", "-f", "qcow2", "-o", options, name, "3G"]);
        assert_eq!(inspected(at, name), Ok(ImageInfo { format: ImageFormat::Qcow2, virtual_size: 3 << 30 }), "{name}");
    }
    qemu_img(at, &["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "v3", "child"]);
    assert_eq!(inspected(at, "child"), Err(ImageProblem::BackingFile(Some("v3".into()))));
    qemu_img(at, &["create", "-q", "-f", "qcow2", "-o", "data_file=elsewhere", "external", "1G"]);
    assert_eq!(inspected(at, "external"), Err(ImageProblem::ExternalDataFile));
    for (format, name) in [("vmdk", "VMDK"), ("vdi", "VDI"), ("vhdx", "VHDX"), ("vpc", "VHD"), ("qed", "QED")] {
        qemu_img(at, &["create", "-q", "-f", format, name, "1G"]);
        assert_eq!(inspected(at, name), Err(ImageProblem::Foreign(name)));
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(
        mutations in proptest::collection::vec((0_usize..112, any::<u8>()), 0..12), length in any::<u64>(), cut in 0_usize..512,
    ) {
        let mut head = header();
        for (at, byte) in mutations {
            head[at] = byte;
        }
        head.truncate(cut);
        if let Ok(info) = inspect(&head, length) {
            prop_assert!(info.virtual_size <= MAX_VIRTUAL_SIZE && info.virtual_size > 0);
        }
    }
}
