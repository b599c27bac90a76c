//! Disks that follow a guest.

use anyhow::{Context, Result, bail};
use blackbox::manifest::{DISK_IMAGE, Manifest, shared_claim};
use serde_json::json;

use crate::stage::Stage;

pub(super) async fn ephemeral(stage: Stage) -> Result<()> {
    let manifest = Manifest::kernel("walker")
        .container_disk("image", DISK_IMAGE)
        .volume("scratch", json!({"emptyDisk": {"capacity": "8Mi"}}))
        .user_data("#cloud-config\nwrite_files:\n- {path: /run/note, content: seeded}\n");
    let guest = stage.scene.start(manifest.json()).await?;
    let mut console = guest.login().await?;
    // Into the image's end, which is empty, and over the whole of the other.
    console.run("yes written | head -c 1048576 | dd of=/dev/vda bs=1M seek=60 iflag=fullblock conv=notrunc,fsync status=none").await?;
    console
        .run("yes scratched | head -c 8388608 | dd of=/dev/vdb bs=1M iflag=fullblock conv=notrunc,fsync status=none")
        .await?;
    // Of the image the part that was written, and one that was not: an emulated guest takes its time for all of it.
    let sums = "echo 3 > /proc/sys/vm/drop_caches; for at in 2 60; do dd if=/dev/vda bs=1M skip=$at count=4 status=none | md5sum; done; \
        md5sum /dev/vdb /dev/vdc; cat /mnt/cidata/user-data /run/note";
    let before = console.run(sums).await?;
    guest.condition("LiveMigratable", "True", 30).await?;
    let method = guest.get().await?["status"]["migrationMethod"].clone();
    if method != "BlockMigration" {
        bail!("its disks have to be copied, and migrationMethod is {method}");
    }
    for number in 1..=2 {
        guest.moved().await?;
        let mut console = guest.console().await?;
        console.resume().await?;
        let after = console.run(sums).await?;
        if after != before {
            bail!("after move {number} its disks are others than before:\n{before}\n{after}");
        }
    }
    Ok(())
}

pub(super) async fn claim(stage: Stage) -> Result<()> {
    stage.scene.create("persistentvolumeclaims", &shared_claim("shared", "64Mi")).await?;
    let source = json!({"persistentVolumeClaim": {"claimName": "shared"}});
    let guest = stage.scene.start(Manifest::working("worker", source.clone(), &[]).json()).await?;
    let mut count = guest.working().await?;
    guest.condition("LiveMigratable", "True", 30).await?;
    for _ in 0..2 {
        guest.moved().await?;
        count = guest.goes_on(count).await?;
        guest.records("vda").await?;
    }
    let written = guest.count().await?.written;
    guest.delete().await?;
    guest.gone(60).await?;
    // Somebody else reads what the first has left.
    let reader = stage.scene.start(Manifest::kernel("reader").volume("data", source).json()).await?;
    let mut console = reader.login().await?;
    let said = console.run(&format!("check-records /dev/vda {written}")).await.context("reading what was written")?;
    match said.trim() == format!("records {written}") {
        true => Ok(()),
        false => bail!("the next guest finds {said:?}"),
    }
}
