//! Build ids of files, the processor and what else the headers of perf.data tell.

use super::bpf;
use super::record::Record;
use super::sched_switch::SchedSwitch;
use crate::fields::Fields;
use pt_image::hex;
use std::collections::{BTreeSet, HashMap};

pub const FEATURE_TRACING_DATA: u32 = 1;
pub const FEATURE_BUILD_ID: u32 = 2;
pub const FEATURE_OSRELEASE: u32 = 4;
pub const FEATURE_NRCPUS: u32 = 7;
pub const FEATURE_CPUID: u32 = 9;
pub const FEATURE_BPF_PROG_INFO: u32 = 25;

/// The 21st byte is the size.
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;

/// What the features of the header tell.
#[derive(Default, Debug)]
pub struct Features {
    /// By the name of the file, hex.
    pub build_ids: HashMap<String, String>,
    /// Of which several stand in the table, as of containers that have a file each in one place.
    pub doubtful: BTreeSet<String>,
    pub cpu: Option<(u16, u8, u8)>,
    /// How many cores the system had; 0 where that is not told.
    pub online: u32,
    pub os_release: String,
    pub sched_switch: Option<SchedSwitch>,
    pub bpf: bpf::Programs,
}

impl Features {
    /// Which of the files a process mapped is a guess.
    pub fn warning(&self) -> Option<String> {
        let (first, count) = (self.doubtful.first()?, self.doubtful.len());
        Some(format!(
            "files of several build ids had one name ({count}, the first: {first}): which of them a process mapped is a guess \
             without `perf record --buildid-mmap`"
        ))
    }

    /// One feature's section; what is damaged in it is left out.
    pub fn take(&mut self, feature: u32, section: &[u8]) {
        match feature {
            FEATURE_BUILD_ID => {
                let mut at = 0;
                while let Ok(Some(record)) = Record::at(section, at) {
                    at += super::record::HEAD + record.body.len();
                    self.build_id(&record);
                }
            }
            FEATURE_TRACING_DATA => self.sched_switch = SchedSwitch::find(section).or(self.sched_switch),
            FEATURE_OSRELEASE => self.os_release = text(section).unwrap_or_default(),
            FEATURE_BPF_PROG_INFO => bpf::take(section, &mut self.bpf),
            // Behind how many it may have.
            FEATURE_NRCPUS => self.online = Fields::new(section, 4).u32().unwrap_or(0),
            FEATURE_CPUID => self.cpu = text(section).and_then(|text| cpu(&text)),
            _ => {}
        }
    }

    /// A build id in a record of its own.
    pub fn build_id(&mut self, record: &Record<'_>) {
        if record.is_of_guest() {
            return;
        }
        let mut fields = Fields::new(record.body, 4);
        let Ok(id) = fields.bytes(24) else { return };
        let size = if record.misc & MISC_BUILD_ID_SIZE != 0 { usize::from(id[20]).min(20) } else { 20 };
        let (name, id) = (fields.text(), hex(&id[..size]));
        if self.build_ids.insert(name.clone(), id.clone()).is_some_and(|before| before != id) {
            self.doubtful.insert(name);
        }
    }
}

/// A text with its size before it.
fn text(section: &[u8]) -> Option<String> {
    let mut fields = Fields::new(section, 0);
    let size = fields.u32().ok()?;
    Some(Fields::new(fields.bytes(size.into()).ok()?, 0).text())
}

/// `GenuineIntel,6,78,3`.
fn cpu(text: &str) -> Option<(u16, u8, u8)> {
    let mut parts = text.strip_prefix("GenuineIntel,")?.split(',');
    let (family, model, stepping) = (parts.next()?, parts.next()?, parts.next()?);
    let stepping: String = stepping.chars().take_while(char::is_ascii_digit).collect();
    Some((family.parse().ok()?, model.parse().ok()?, stepping.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::record::kind;
    use crate::perf::recording::{text as text_of, Pipe};

    #[test]
    fn the_processor_is_vendor_family_model_stepping() {
        assert_eq!(cpu("GenuineIntel,6,78,3"), Some((6, 78, 3)));
        assert_eq!(cpu("AuthenticAMD,25,1,1"), None);
        assert_eq!(cpu("GenuineIntel,6"), None);
    }

    #[test]
    fn files_of_several_build_ids_with_one_name_are_told() {
        let mut features = Features::default();
        let table = |entries: &[(&str, u8)]| {
            let mut records = Pipe(Vec::new());
            for &(name, id) in entries {
                let body = [vec![0; 4], vec![id; 20], vec![0; 4], text_of(name)].concat();
                records.record(kind::BUILD_ID, 2, &body);
            }
            records.0
        };
        features.take(FEATURE_BUILD_ID, &table(&[("/app", 1), ("/lib", 2), ("/app", 1)]));
        assert_eq!(features.warning(), None);
        features.take(FEATURE_BUILD_ID, &table(&[("/app", 3), ("/app", 1)]));
        let warning = features.warning().unwrap();
        assert!(warning.starts_with("files of several build ids had one name (1, the first: /app)"), "{warning}");
    }
}
