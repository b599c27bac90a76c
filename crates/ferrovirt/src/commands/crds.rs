//! `ferrovirt crds`

use std::io::Write;

/// Arguments of `crds`.
#[derive(clap::Args, Clone)]
pub(crate) struct Args {
    /// Output format.
    #[arg(short, long, default_value = "yaml")]
    output: Format,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum Format {
    /// One YAML document per definition.
    Yaml,
    /// One JSON `List`.
    Json,
}

/// Prints the definitions.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match args.output {
        Format::Json => {
            let items = ferrovirt_api::crds::crds();
            let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        }
        Format::Yaml => {
            for crd in ferrovirt_api::crds::crds() {
                write!(out, "---\n{}", serde_saphyr::to_string(&serde_json::to_value(crd)?)?)?;
            }
        }
    }
    Ok(())
}
