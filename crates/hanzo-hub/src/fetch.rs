//! Fetching what is not here: locks, then the sources in order, then the manifest.
//!
//! Locks are taken in one order (use, model, blob), each blob's alone, so that no two fetches wait for each other.

use std::cell::RefCell;

use crate::{
    cache::Cache,
    catalog::{CatalogModel, Source},
    download::{Blob, Check, Downloader, Want},
    error::{Attempt, Error, Result},
    event::Event,
    hf_api::{self, Repo},
    hf_cache,
    http::Http,
    hub::{Hub, ModelFiles, Origin},
    manifest::{self, FileEntry, Manifest},
    name::{self, HubId},
    pip::{Pip, Wheels},
    select,
};

/// Fetches the model `name`; the files when all are here.
pub(crate) fn fetch(
    hub: &Hub,
    name: &str,
    origin: &Origin,
    on_event: &mut dyn FnMut(Event),
) -> Result<ModelFiles> {
    let _use = hub.cache.lock_use()?;
    let emit = RefCell::new(on_event);
    let fetch = Fetch { hub, cache: &hub.cache, name, emit };
    if let Some(manifest) = fetch.already_here(origin)? {
        return fetch.commit(&manifest, origin);
    }
    if hub.config.offline {
        return Err(fetch.offline(origin));
    }
    let _model = hub.cache.lock(&format!("model-{}", manifest::slug(name)), &mut || fetch.wait())?;
    if let Some(files) = hub.cached(name, origin)? {
        return Ok(files);
    }
    fetch.tell(Event::Resolving { name: name.to_owned() });
    let manifest = match origin {
        Origin::Catalog(model) => fetch.catalog(model)?,
        Origin::Hub(id) => fetch.hub_id(id)?,
        Origin::Url(url) => fetch.url(url)?,
        Origin::Alias => return Err(Error::name(name, "its files are missing; remove it and copy it anew")),
    };
    fetch.commit(&manifest, origin)
}

/// One fetch.
struct Fetch<'a> {
    hub: &'a Hub,
    cache: &'a Cache,
    name: &'a str,
    emit: RefCell<&'a mut dyn FnMut(Event)>,
}

impl Fetch<'_> {
    fn tell(&self, event: Event) {
        (self.emit.borrow_mut())(event);
    }

    fn wait(&self) {
        self.tell(Event::Waiting { name: self.name.to_owned() });
    }

    /// Writes the manifest and gives the files.
    fn commit(&self, manifest: &Manifest, origin: &Origin) -> Result<ModelFiles> {
        self.cache.write_manifest(manifest)?;
        let files = self.hub.cached(self.name, origin)?;
        files.ok_or_else(|| {
            Error::name(self.name, "its files vanished from the cache while they were fetched")
        })
    }

    /// A catalog model whose file is here already: as a blob of another name, or in Hugging Face's cache.
    fn already_here(&self, origin: &Origin) -> Result<Option<Manifest>> {
        let Origin::Catalog(model) = origin else { return Ok(None) };
        let blob = Blob { sha256: model.sha256.to_owned(), size: model.size };
        if self.cache.has_blob(model.sha256, model.size) {
            return Ok(Some(self.catalog_manifest(model, blob, "model cache".to_owned(), true)));
        }
        let root = self.hub.config.hf_cache_dir.as_ref();
        let Some(path) = root.and_then(|root| hf_cache::find_blob(root, model.sha256, model.size)) else {
            return Ok(None);
        };
        self.tell(Event::Verifying { file: path.display().to_string() });
        if hf_cache::hash_file(&path)? != model.sha256 {
            tracing::warn!(path = %path.display(), "content differs from its name; not used");
            return Ok(None);
        }
        let mut manifest = self.catalog_manifest(model, blob, "Hugging Face cache".to_owned(), true);
        manifest.files[0].external = Some(std::path::absolute(&path).map_err(|e| Error::io(&path, e))?);
        Ok(Some(manifest))
    }

    fn catalog_manifest(&self, model: &CatalogModel, blob: Blob, source: String, official: bool) -> Manifest {
        let file =
            FileEntry { name: model.file.to_owned(), size: blob.size, sha256: blob.sha256, external: None };
        Manifest::new(self.name.to_owned(), model.licence.to_owned(), official, source, vec![file])
    }

    fn catalog(&self, model: &CatalogModel) -> Result<Manifest> {
        self.tell(Event::Licence {
            name: self.name.to_owned(),
            licence: model.licence.to_owned(),
            size: Some(model.size),
        });
        let mut attempts = Vec::new();
        for source in model.sources {
            let described = self.hub.describe(source);
            let official = match source {
                Source::Hub { official, .. } | Source::Pip { official, .. } => *official,
            };
            self.tell(Event::Source { source: described.clone(), official });
            match self.catalog_source(model, source) {
                Ok(blob) => return Ok(self.catalog_manifest(model, blob, described, official)),
                Err(error) if error.is_space() => return Err(error),
                Err(error) => {
                    self.tell(Event::SourceFailed { source: described.clone(), error: error.to_string() });
                    attempts.push(Attempt { source: described, error });
                }
            }
        }
        let advice = format!(
            "check the network and the proxy settings, or install Python 3 with pip, or bring {} ({} bytes, sha256 {}) \
             from another machine and give its path instead of the name",
            model.file, model.size, model.sha256
        );
        Err(Error::sources(self.name, attempts, advice))
    }

    fn catalog_source(&self, model: &CatalogModel, source: &Source) -> Result<Blob> {
        let mut on_bytes = |done, total| self.tell(Event::Progress { done, total });
        let config = &self.hub.config;
        match source {
            Source::Hub { repo, revision, file, same_file, .. } => {
                let check = if *same_file { Check::Sha256(model.sha256.to_owned()) } else { Check::HubHash };
                let want = Want {
                    url: hf_api::file_url(&config.endpoint, repo, revision, file),
                    size: same_file.then_some(model.size),
                    check,
                    access_page: Some(format!("{}/{repo}", config.endpoint)),
                };
                let http = Http::new(config)?;
                self.downloader(&http).download(&want, &mut on_bytes, &mut || self.wait())
            }
            Source::Pip { parts, take, download_size, .. } => {
                let pip = Pip {
                    cache: self.cache,
                    pythons: &config.pythons,
                    stall_timeout: config.pip_stall_timeout,
                };
                let wheels = Wheels {
                    parts,
                    take,
                    download_size: *download_size,
                    size: model.size,
                    sha256: model.sha256,
                };
                pip.fetch(self.name, &wheels, &mut on_bytes, &mut || self.wait())
            }
        }
    }

    fn hub_id(&self, id: &HubId) -> Result<Manifest> {
        let config = &self.hub.config;
        let http = Http::new(config)?;
        let repo = Repo::get(&http, &config.endpoint, &id.repo)?;
        let available: Vec<String> = repo.siblings.iter().map(|file| file.name.clone()).collect();
        let names = select::select(&available, &id.select).map_err(|what| Error::name(self.name, what))?;
        let chosen: Vec<_> =
            names.iter().filter_map(|name| repo.siblings.iter().find(|file| file.name == *name)).collect();
        let total = chosen.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.size?));
        let licence = repo.licence();
        self.tell(Event::Licence { name: self.name.to_owned(), licence: licence.clone(), size: total });
        let source = format!("Hugging Face hub {}/{}/tree/{}", config.endpoint, id.repo, repo.revision());
        self.tell(Event::Source { source: source.clone(), official: true });
        self.cache.check_space(total.unwrap_or(0))?;
        let mut entries = Vec::with_capacity(chosen.len());
        let mut before = 0_u64;
        for file in chosen {
            let want = Want {
                url: hf_api::file_url(&config.endpoint, &id.repo, repo.revision(), &file.name),
                size: file.size,
                check: file.sha256().map_or(Check::Length, Check::Sha256),
                access_page: Some(format!("{}/{}", config.endpoint, id.repo)),
            };
            let mut on_bytes = |done: u64, size: Option<u64>| {
                let total = total.or(size.map(|size| before.saturating_add(size)));
                self.tell(Event::Progress { done: before.saturating_add(done), total });
            };
            let blob = self.downloader(&http).download(&want, &mut on_bytes, &mut || self.wait())?;
            before = before.saturating_add(blob.size);
            entries.push(FileEntry {
                name: file.name.clone(),
                size: blob.size,
                sha256: blob.sha256,
                external: None,
            });
        }
        Ok(Manifest::new(self.name.to_owned(), licence, true, source, entries))
    }

    fn url(&self, url: &str) -> Result<Manifest> {
        let licence = "unknown".to_owned();
        self.tell(Event::Licence { name: self.name.to_owned(), licence: licence.clone(), size: None });
        self.tell(Event::Source { source: url.to_owned(), official: true });
        let http = Http::new(&self.hub.config)?;
        let want = Want { url: url.to_owned(), size: None, check: Check::Length, access_page: None };
        let mut on_bytes = |done, total| self.tell(Event::Progress { done, total });
        let blob = self.downloader(&http).download(&want, &mut on_bytes, &mut || self.wait())?;
        let file =
            FileEntry { name: name::file_of_url(url), size: blob.size, sha256: blob.sha256, external: None };
        Ok(Manifest::new(self.name.to_owned(), licence, true, url.to_owned(), vec![file]))
    }

    fn downloader<'h>(&'h self, http: &'h Http) -> Downloader<'h> {
        Downloader { http, cache: self.cache, stall_timeout: self.hub.config.stall_timeout }
    }

    fn offline(&self, origin: &Origin) -> Error {
        let missing = match origin {
            Origin::Catalog(model) => {
                format!("its file {} ({} bytes, sha256 {})", model.file, model.size, model.sha256)
            }
            Origin::Hub(id) => format!("the files of {}", id.full_name()),
            Origin::Url(url) => format!("the file {url}"),
            Origin::Alias => "its file".to_owned(),
        };
        let what = format!(
            "{missing} is not in the model cache {}, and offline mode forbids to fetch it; run hanzo pull {} once \
             with a network, or give the path of a model file",
            self.hub.config.cache_dir.display(),
            self.name
        );
        Error::name(self.name, what)
    }
}
