//! The program `obento`: the command with every driver of obento.

fn main() -> std::process::ExitCode {
    obento_cli::main(obento::Registry::default())
}
