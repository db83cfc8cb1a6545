"""The embedding model that the settings name, described without loading its weights."""

from __future__ import annotations

from dataclasses import dataclass

from aps_rag_pipeline.models import Encoder, ModelDescription, Tokens, describe, open_encoder, resolve
from aps_rag_pipeline.models.hashing import PREFIX, HashEncoder
from aps_rag_pipeline.settings import Settings
from aps_rag_pipeline.stores.home import Home


@dataclass(frozen=True)
class ConfiguredModel:
    description: ModelDescription
    settings: Settings
    home: Home

    def tokens(self) -> Tokens:
        if self.description.name.startswith(PREFIX):
            return HashEncoder(self.description.name).tokens
        files = describe(resolve(self.description.name), self.description.name, self.home.models)
        return Tokens.from_file(files.tokenizer, self.description)

    def encoder(self) -> Encoder:
        """Loads the weights."""
        return open_encoder(self.settings.models, self.home.models, bulk=True)


def configured_model(settings: Settings, home: Home) -> ConfiguredModel:
    """Raises:
    ModelError: the model is not on this machine.
    """
    name = settings.models.embedding
    if name.startswith(PREFIX):
        return ConfiguredModel(HashEncoder(name).description, settings, home)
    return ConfiguredModel(describe(resolve(name), name, home.models).description, settings, home)
