//! `ferrovirt images`: the machine's store of container images, and images made from files.

use std::path::PathBuf;

use ferrovirt_images::build::{self, Layer};

use crate::local::Home;

/// What can be done with images.
#[derive(clap::Subcommand, Clone)]
pub(crate) enum Images {
    /// Import an image from an OCI layout (directory or tar) or a docker-archive, as `docker save` writes it.
    ///
    /// Guests then name it in `containerDisk.image`; nothing is pulled.
    Import(ImportArgs),
    /// List the images.
    List(Home),
    /// Make an image from files: an OCI archive, for `images import`, `ctr images import`, `skopeo copy` and whatever pushes images.
    ///
    /// No daemon is needed, and the same files give the same image: names, contents and permissions alone count.
    Pack(PackArgs),
}

/// Arguments of `import`.
#[derive(clap::Args, Clone)]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    home: Home,
    /// The layout or archive.
    path: PathBuf,
    /// Name of the image, such as `example.com/disk:1`. Default: the name that the file says.
    #[arg(long, value_name = "REFERENCE")]
    name: Option<String>,
}

/// Arguments of `pack`.
#[derive(clap::Args, Clone)]
pub(crate) struct PackArgs {
    /// Name of the image, such as `example.com/disk:1`.
    #[arg(long, value_name = "REFERENCE")]
    name: String,
    /// The archive that is written.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Make a container disk: an image with nothing but this disk of a guest, raw or qcow2.
    #[arg(long, value_name = "FILE", conflicts_with = "directories", required_unless_present = "directories")]
    disk: Option<PathBuf>,
    /// What is in the image, one layer for each directory. Everything belongs to root there.
    #[arg(value_name = "DIRECTORY")]
    directories: Vec<PathBuf>,
    /// The program that containers of the image run.
    #[arg(long, value_name = "PROGRAM")]
    entrypoint: Option<String>,
    /// The user that it runs as.
    #[arg(long, value_name = "UID[:GID]")]
    user: Option<String>,
    /// A variable of its environment; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
}

/// Runs one of them.
pub(crate) fn run(images: &Images) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match images {
        Images::Import(args) => runtime.block_on(import(args)),
        Images::List(home) => list(home),
        Images::Pack(args) => pack(args),
    }
}

async fn import(args: &ImportArgs) -> anyhow::Result<()> {
    let store = ferrovirt_images::Store::open(&args.home.directory()?.join("images"))?;
    let image = store.import(&args.path, args.name.as_deref()).await?;
    println!("{} {}", image.reference, image.id);
    Ok(())
}

fn list(home: &Home) -> anyhow::Result<()> {
    let store = ferrovirt_images::Store::open(&home.directory()?.join("images"))?;
    for image in store.list()? {
        println!("{} {}", image.reference, image.id);
    }
    Ok(())
}

/// Prints the image's name, its digest and the size of the archive.
fn pack(args: &PackArgs) -> anyhow::Result<()> {
    let layers = match &args.disk {
        Some(disk) => vec![build::container_disk(disk)],
        None => args.directories.iter().map(|directory| Layer::directory(directory)).collect::<Result<_, _>>()?,
    };
    let config = ferrovirt_images::ImageConfig {
        entrypoint: args.entrypoint.iter().cloned().collect(),
        user: args.user.clone().unwrap_or_default(),
        env: args.env.clone(),
        ..Default::default()
    };
    let digest = build::oci_archive(&layers, &config, &args.name, &args.out)?;
    println!("{} {digest} {} bytes", args.name, std::fs::metadata(&args.out)?.len());
    Ok(())
}
