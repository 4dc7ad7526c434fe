//! Creates an image with a small root file system: `cargo run --example build -- disk.img`.

use std::error::Error;
use std::time::{Duration, SystemTime};

use obento::prelude::*;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: build IMAGE")?;
    let image = Image::create(path, 16 << 20, "ext4")?;
    let volume = image.volume(None)?;
    for directory in ["/bin", "/dev", "/etc", "/home/alice", "/tmp"] {
        volume.create_dir_all(directory)?;
    }
    volume.set_permissions("/tmp", Mode::new(0o1777))?;
    volume.chown("/home/alice", Some(1000), Some(1000))?;
    volume.write("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")?;
    volume.write("/bin/busybox", "#!/bin/false\n")?;
    volume.set_permissions("/bin/busybox", Mode::new(0o755))?;
    volume.symlink("busybox", "/bin/sh")?;
    volume.hard_link("/bin/busybox", "/bin/ls")?;
    let null = DeviceNumber { major: 1, minor: 3 };
    volume.mknod("/dev/null", FileKind::CharDevice, Mode::new(0o666), null)?;
    volume.set_xattr("/bin/busybox", "user.version", "1.36")?;
    // Every build has the same times.
    let released = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    volume.set_times("/etc/passwd", released, released)?;
    volume.close()?;
    Ok(())
}
