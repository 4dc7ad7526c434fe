//! The sample image: a GPT disk with one ext4 partition, small enough for the repository.

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::packages;

const TREE: &str = r#"
mkdir -p tree/etc tree/home/bento/box tree/usr/bin tree/var/log
cd tree
printf 'root:x:0:0:root:/root:/bin/sh\nbento:x:1000:1000:Bento:/home/bento:/bin/sh\n' > etc/passwd
printf 'root:x:0:\nbento:x:1000:\n' > etc/group
printf 'NAME="obento sample"\nID=obento\n' > etc/os-release
printf 'Hello from inside an ext4 partition of a GPT disk in a zstd file.\n' > home/bento/hello.txt
ln -s ../../etc/os-release home/bento/release
ln home/bento/hello.txt home/bento/box/second-name.txt
printf '#!/bin/sh\necho obento\n' > usr/bin/obento-hello
chmod 4755 usr/bin/obento-hello
truncate -s 64M var/log/sparse.log
printf 'an island' | dd of=var/log/sparse.log bs=1 seek=33554432 conv=notrunc status=none
for n in $(seq -w 1 300); do printf 'compartment %s\n' "$n" > "home/bento/box/compartment-$n"; done
chown -R 1000:1000 home/bento
setfattr -n user.note -v 'packed with care' home/bento/hello.txt
setfacl -m u:1000:rw etc/os-release
"#;

const DISK: &str = r#"
truncate -s 14M part.img
mke2fs -q -t ext4 -L sample -U 0b3470a5-0000-4000-8000-0be270000001 -N 512 -d tree part.img
truncate -s 16M disk.img
{ echo 'label: gpt'; echo 'label-id: 0B3470A5-0000-4000-8000-0BE270000000'
  echo 'start=2048, size=28672, type=L, name="sample root"'; } | sfdisk -q disk.img
dd if=part.img of=disk.img bs=1M seek=1 conv=notrunc,sparse status=none
zstd -q -19 disk.img
"#;

/// Makes `samples/disk.img.zst`.
pub fn run(shell: &Shell) -> Result<()> {
    packages::ensure(
        shell,
        &[
            ("/sbin/sfdisk", "fdisk"),
            ("/usr/bin/setfattr", "attr"),
            ("/usr/bin/setfacl", "acl"),
            ("/usr/bin/zstd", "zstd"),
        ],
    )?;
    let folder = shell.create_temp_dir()?;
    {
        let _inside = shell.push_dir(folder.path());
        cmd!(shell, "sh -euc {TREE}").run()?;
        cmd!(shell, "sh -euc {DISK}").run()?;
    }
    shell.create_dir("samples")?;
    shell.copy_file(folder.path().join("disk.img.zst"), "samples/disk.img.zst")?;
    Ok(())
}
