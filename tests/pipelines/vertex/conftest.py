"""Fixtures of submissions and registries, which those of Vertex AI need, too."""

from tests.pipelines.retrain.registry.conftest import deployed as deployed
from tests.pipelines.submit.conftest import mlgo as mlgo
from tests.pipelines.submit.conftest import submit as submit
from tests.pipelines.submit.test_overrides import overrides as overrides
