//! Writes the inputs that the targets start from to the folder that is named.

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).expect("a folder");
    obento_fuzz::seeds::write(folder.as_ref())
}
