//! Every command of obento, for volumes of this format too.

fn main() -> std::process::ExitCode {
    obento_cli::main(obento::Registry::default().with(skeletonfs::MyDriver))
}
