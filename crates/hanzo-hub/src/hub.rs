//! The public face: resolve a name, fetch it, and look after what is in the cache.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cache::{self, Cache},
    catalog::{self, CatalogModel, Source},
    config::HubConfig,
    error::{Error, Result},
    event::Event,
    fetch, hf_cache,
    manifest::{FILES_MAX, Manifest},
    name::{self, HubId, Name},
    pip::{NoPython, Pip},
};

/// Resolves names and fetches models into one cache.
#[derive(Debug)]
pub struct Hub {
    pub(crate) config: HubConfig,
    pub(crate) cache: Cache,
}

/// What a name means here and now.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// An existing file or directory that the user named.
    Path(ModelFiles),
    /// A model that is in this cache or in Hugging Face's.
    Cached(ModelFiles),
    /// A model that would have to be fetched.
    NotCached(Plan),
}

/// The files of a model on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFiles {
    /// Full name: `smollm2:135m`, `org/repo:Q4_K_M`, an address or a path.
    pub name: String,
    /// The files, the main one first; never empty.
    pub files: Vec<ModelFile>,
    /// Directory in which all files carry their own names, where there is one (always for several files).
    pub dir: Option<PathBuf>,
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFile {
    /// Readable name; the path of a single cached file is a hash instead.
    pub name: String,
    /// Where it lies, ready to be opened or mapped.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
}

impl ModelFiles {
    /// Paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// What a loader is to open: the first GGUF file, else the directory, else the first file.
    pub fn main_path(&self) -> &Path {
        let is_gguf = |file: &&ModelFile| file.name.to_ascii_lowercase().ends_with(".gguf");
        match (self.files.iter().find(is_gguf), &self.dir) {
            (Some(file), _) => &file.path,
            (None, Some(dir)) => dir,
            (None, None) => self.files.first().map_or(Path::new(""), |file| &file.path),
        }
    }

    /// Bytes of all files.
    pub fn size(&self) -> u64 {
        self.files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
    }
}

/// What a fetch would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Full name.
    pub name: String,
    /// Licence, where known before asking the hub.
    pub licence: Option<String>,
    /// Bytes, where known before asking the hub.
    pub size: Option<u64>,
    /// Sources in the order they would be tried, in words.
    pub sources: Vec<String>,
}

/// A model in the cache.
#[derive(Clone, Debug)]
pub struct Installed {
    /// Full name.
    pub name: String,
    /// Licence, or "unknown".
    pub licence: String,
    /// Where it came from.
    pub source: String,
    /// False for an unofficial upload; true also where the user named the uploader.
    pub official: bool,
    /// Bytes of all files.
    pub size: u64,
    /// Readable names, sizes in bytes and hashes of its files.
    pub files: Vec<(String, u64, String)>,
    /// Why it cannot be used, if so.
    pub problem: Option<String>,
}

/// What a removal did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Full name.
    pub name: String,
    /// Bytes freed; None: the files stay until the next removal, since a fetch is going on or a manifest is damaged.
    pub freed: Option<u64>,
}

/// Where a model that is not a path comes from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    Catalog(&'static CatalogModel),
    Hub(HubId),
    Url(String),
    /// A name of the user's own.
    Alias,
}

impl Hub {
    /// A hub with these settings; touches nothing yet.
    pub fn new(config: HubConfig) -> Self {
        let cache = Cache::new(config.cache_dir.clone(), config.hf_cache_dir.clone());
        Self { config, cache }
    }

    /// The settings.
    pub fn config(&self) -> &HubConfig {
        &self.config
    }

    /// What `text` means, without the network: an existing path, else a model here, else how it could be had.
    pub fn resolve(&self, text: &str) -> Result<Resolved> {
        if let Some(files) = existing_path(text)? {
            return Ok(Resolved::Path(files));
        }
        let (name, origin) = self.identify(text)?;
        if let Some(files) = self.cached(&name, &origin)? {
            return Ok(Resolved::Cached(files));
        }
        self.plan(name, &origin).map(Resolved::NotCached)
    }

    /// Gives the files of `text`, fetching them if they are not here. Waits for another process that does so.
    pub fn fetch(&self, text: &str, on_event: &mut dyn FnMut(Event)) -> Result<ModelFiles> {
        let files = match self.resolve(text)? {
            Resolved::Path(files) | Resolved::Cached(files) => files,
            Resolved::NotCached(_) => {
                let (name, origin) = self.identify(text)?;
                fetch::fetch(self, &name, &origin, on_event)?
            }
        };
        on_event(Event::Done { name: files.name.clone() });
        Ok(files)
    }

    /// All models in this cache, by name; damaged ones with their problem.
    pub fn list(&self) -> Result<Vec<Installed>> {
        let mut models = Vec::new();
        for path in self.cache.manifest_paths()? {
            models.push(match Manifest::read(&path) {
                Ok(manifest) => self.installed(manifest),
                Err(error) => damaged(&path, &error),
            });
        }
        models.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(models)
    }

    /// One model of this cache.
    pub fn show(&self, text: &str) -> Result<Installed> {
        let (name, _) = self.identify(text)?;
        match self.cache.read_manifest(&name)? {
            Some(manifest) => Ok(self.installed(manifest)),
            None => Err(not_here(&name)),
        }
    }

    /// Takes a model out of this cache, and its files where no other model needs them. `text` may also be the name
    /// under which [`Hub::list`] shows a damaged model.
    pub fn remove(&self, text: &str) -> Result<Removed> {
        let listed =
            self.cache.manifest_paths()?.into_iter().find(|path| path.file_stem().is_some_and(|s| s == text));
        let (name, path) = match listed {
            Some(path) => (text.to_owned(), path),
            None => {
                let (name, _) = self.identify(text)?;
                let path = self.cache.manifest_path(&name);
                (name, path)
            }
        };
        if !path.exists() {
            return Err(not_here(&name));
        }
        fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
        let view = path.file_stem().map(|slug| self.config.cache_dir.join("views").join(slug));
        if let Some(view) = view.filter(|view| view.exists()) {
            fs::remove_dir_all(&view).map_err(|e| Error::io(view, e))?;
        }
        let freed = self.cache.collect_garbage()?;
        Ok(Removed { name, freed })
    }

    /// Gives the cached model `from` the second name `to`, a short name of the user's own.
    pub fn copy(&self, from: &str, to: &str) -> Result<()> {
        let (source, _) = self.identify(from)?;
        let mut manifest = self.cache.read_manifest(&source)?.ok_or_else(|| not_here(&source))?;
        let alias = to.to_ascii_lowercase();
        if !name::is_short_name(&alias) {
            return Err(Error::name(
                to,
                "a second name has letters, digits, '.', '-', '_' and at most one ':' before its tag",
            ));
        }
        if catalog::find(self.config.catalog, &alias).is_some() {
            return Err(Error::name(to, "the catalog has this name; choose another"));
        }
        let _lock = self.cache.lock(&format!("model-{}", crate::manifest::slug(&alias)), &mut || ())?;
        if self.cache.manifest_path(&alias).exists() {
            return Err(Error::name(to, "a model of this name is there already; remove it first"));
        }
        manifest.name = alias;
        self.cache.write_manifest(&manifest)
    }

    /// Hashes the files of a cached model again; an error names the first that is not what it was.
    pub fn verify(&self, text: &str, on_event: &mut dyn FnMut(Event)) -> Result<()> {
        let (name, _) = self.identify(text)?;
        let manifest = self.cache.read_manifest(&name)?.ok_or_else(|| not_here(&name))?;
        for file in &manifest.files {
            on_event(Event::Verifying { file: file.name.clone() });
            let path = self.cache.locate(file);
            let path =
                path.ok_or_else(|| Error::name(&name, format!("file {} is missing or cut", file.name)))?;
            let got = hf_cache::hash_file(&path)?;
            if got != file.sha256 {
                let what = format!(
                    "its sha256 is {got}, expected {}; remove the model {name} and pull it",
                    file.sha256
                );
                return Err(Error::file(path, what));
            }
        }
        Ok(())
    }

    /// Writes to the cache directory, making it if need be; bytes free on its disk.
    pub fn probe_cache(&self) -> Result<u64> {
        self.cache.probe()
    }

    /// The Python command that package downloads would use, and the version of its pip. An error where the cache cannot
    /// be written.
    pub fn probe_python(&self) -> Result<std::result::Result<String, NoPython>> {
        let pip = Pip {
            cache: &self.cache,
            pythons: &self.config.pythons,
            stall_timeout: self.config.pip_stall_timeout,
        };
        pip.probe()
    }

    /// Full name and origin of what is no existing path.
    pub(crate) fn identify(&self, text: &str) -> Result<(String, Origin)> {
        match name::parse(text)? {
            Name::Short(short) => match catalog::find(self.config.catalog, &short) {
                Some(model) => Ok((model.full_name(), Origin::Catalog(model))),
                None => Ok((short, Origin::Alias)),
            },
            Name::Hub(id) => Ok((id.full_name(), Origin::Hub(id))),
            Name::Url(url) => Ok((url.clone(), Origin::Url(url))),
        }
    }

    /// The model's files, where all are here.
    pub(crate) fn cached(&self, name: &str, origin: &Origin) -> Result<Option<ModelFiles>> {
        match self.cache.read_manifest(name) {
            Ok(Some(manifest)) => {
                if let Some(files) = self.arranged(&manifest)? {
                    return Ok(Some(files));
                }
            }
            Ok(None) => {}
            // Only what can be fetched anew may pass over a damaged manifest.
            Err(error) if matches!(origin, Origin::Alias) => return Err(error),
            Err(error) => tracing::warn!(%error, "manifest is not used"),
        }
        let Origin::Hub(id) = origin else { return Ok(None) };
        let Some(root) = &self.config.hf_cache_dir else { return Ok(None) };
        let Some((dir, paths)) = hf_cache::snapshot(root, id) else { return Ok(None) };
        let files =
            paths.into_iter().map(|(name, path)| model_file(name, path)).collect::<Result<Vec<_>>>()?;
        Ok(Some(ModelFiles { name: name.to_owned(), files, dir: Some(dir) }))
    }

    fn arranged(&self, manifest: &Manifest) -> Result<Option<ModelFiles>> {
        let Some((dir, paths)) = self.cache.arrange(manifest)? else { return Ok(None) };
        let files = manifest
            .files
            .iter()
            .zip(paths)
            .map(|(file, path)| ModelFile { name: file.name.clone(), path, size: file.size })
            .collect();
        Ok(Some(ModelFiles { name: manifest.name.clone(), files, dir }))
    }

    fn plan(&self, name: String, origin: &Origin) -> Result<Plan> {
        match origin {
            Origin::Catalog(model) => Ok(Plan {
                name,
                licence: Some(model.licence.to_owned()),
                size: Some(model.size),
                sources: model.sources.iter().map(|source| self.describe(source)).collect(),
            }),
            Origin::Hub(id) => {
                let source = format!("Hugging Face hub {}/{}", self.config.endpoint, id.repo);
                Ok(Plan { name, licence: None, size: None, sources: vec![source] })
            }
            Origin::Url(url) => Ok(Plan { name, licence: None, size: None, sources: vec![url.clone()] }),
            Origin::Alias if self.cache.manifest_path(&name).exists() => {
                Err(Error::name(name, "its files are missing; remove it and copy it anew"))
            }
            Origin::Alias => Err(self.unknown(&name)),
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let known: BTreeSet<String> = self.config.catalog.iter().map(CatalogModel::full_name).collect();
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        Error::name(
            name,
            format!(
                "no such file, and no such model in the catalog ({known}); other models are named org/repo as on the \
                 Hugging Face hub, by an https address, or by their path"
            ),
        )
    }

    /// A catalog source in words.
    pub(crate) fn describe(&self, source: &Source) -> String {
        match source {
            Source::Hub { repo, file, .. } => {
                format!("Hugging Face hub {}/{repo}/{file}", self.config.endpoint)
            }
            Source::Pip { parts, .. } if parts.first == parts.last => {
                let only = parts.requirements().next().unwrap_or_default();
                format!("PyPI package {only}")
            }
            Source::Pip { parts, .. } => {
                let n = u64::from(parts.last) - u64::from(parts.first) + 1;
                let mut packages = parts.requirements();
                let (first, last) =
                    (packages.next().unwrap_or_default(), packages.last().unwrap_or_default());
                format!("{n} PyPI packages {first} to {last}")
            }
        }
    }

    fn installed(&self, manifest: Manifest) -> Installed {
        let missing = manifest.files.iter().find(|file| self.cache.locate(file).is_none());
        let problem = missing.map(|file| format!("file {} is missing or cut", file.name));
        Installed {
            size: manifest.files.iter().fold(0, |sum, file| sum.saturating_add(file.size)),
            files: manifest.files.into_iter().map(|file| (file.name, file.size, file.sha256)).collect(),
            name: manifest.name,
            licence: manifest.licence,
            source: manifest.source,
            official: manifest.official,
            problem,
        }
    }
}

fn not_here(name: &str) -> Error {
    Error::name(name, format!("not in the model cache; hanzo pull {name} fetches it"))
}

fn damaged(path: &Path, error: &Error) -> Installed {
    Installed {
        name: path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default(),
        licence: "unknown".to_owned(),
        source: "unknown".to_owned(),
        official: false,
        size: 0,
        files: Vec::new(),
        problem: Some(error.to_string()),
    }
}

fn model_file(name: String, path: PathBuf) -> Result<ModelFile> {
    let size = path.metadata().map_err(|e| Error::io(&path, e))?.len();
    Ok(ModelFile { name, path, size })
}

/// The files at a path, or None where nothing is there.
fn existing_path(text: &str) -> Result<Option<ModelFiles>> {
    let path = Path::new(text);
    if text.is_empty() || text.contains("://") || !path.exists() {
        return Ok(None);
    }
    let leaf = |path: &Path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    if !path.is_dir() {
        let files = vec![model_file(leaf(path), path.to_owned())?];
        return Ok(Some(ModelFiles { name: text.to_owned(), files, dir: None }));
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| Error::io(path, e))?.take(FILES_MAX) {
        let entry = entry.map_err(|e| Error::io(path, e))?.path();
        if entry.is_file() {
            files.push(model_file(leaf(&entry), entry)?);
        }
    }
    if files.is_empty() {
        return Err(Error::file(path, "directory holds no files"));
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(ModelFiles { name: text.to_owned(), files, dir: Some(path.to_owned()) }))
}

/// The blob behind an entry, for tests and tools.
impl Hub {
    /// Where a cached blob of this hash lies, if it is here with this size.
    pub fn blob_path(&self, sha256: &str, size: u64) -> Option<PathBuf> {
        let sound = crate::manifest::is_sha256(sha256);
        let path = self.cache.blob(sha256);
        (sound && cache::is_file_of(&path, size)).then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loader_opens_the_gguf_or_the_folder() {
        let main = |names: &[&str], dir: Option<&str>| {
            let file =
                |name: &&str| ModelFile { name: name.to_string(), path: Path::new("p").join(name), size: 1 };
            let files = names.iter().map(file).collect();
            let files = ModelFiles { name: "x".to_owned(), files, dir: dir.map(PathBuf::from) };
            files.main_path().display().to_string().replace('\\', "/")
        };
        assert_eq!(main(&["model"], None), "p/model");
        assert_eq!(
            main(&["a-00001-of-00002.gguf", "a-00002-of-00002.gguf"], Some("d")),
            "p/a-00001-of-00002.gguf"
        );
        assert_eq!(main(&["README.md", "model.GGUF"], Some("d")), "p/model.GGUF");
        assert_eq!(main(&["config.json", "model.safetensors"], Some("d")), "d");
        // A lone file of a folder is no model by itself.
        assert_eq!(main(&["tokenizer.json"], Some("d")), "d");
    }
}
