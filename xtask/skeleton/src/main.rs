//! The obento program, extended with this format.

fn main() -> std::process::ExitCode {
    obento_cli::main(obento::Registry::default().with(skeletonfs::MyDriver))
}
