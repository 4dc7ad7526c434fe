//! Writes a volume to look at: `cargo run --example pack disk.img`.

fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "disk.img".into());
    std::fs::write(path, skeletonfs::pack(&[("hello", b"Hello, world.\n"), ("empty", b"")]))
}
