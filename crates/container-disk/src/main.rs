//! `container-disk install DIR` and `container-disk hold SOCKET`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["install", directory] => container_disk::install(Path::new(directory)),
        ["hold", socket] => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .and_then(|runtime| runtime.block_on(container_disk::hold(Path::new(socket)))),
        _ => {
            eprintln!("usage: container-disk install DIR | hold SOCKET");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("container-disk {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}
