//! `ferrovirt images`: the machine's store of container images.

use std::path::PathBuf;

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

/// Runs one of them.
pub(crate) fn run(images: &Images) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match images {
        Images::Import(args) => runtime.block_on(import(args)),
        Images::List(home) => list(home),
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
