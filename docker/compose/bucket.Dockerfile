# An emulator of Cloud Storage for docker/compose/compose.yaml. It keeps a bucket in /data, and checks no preconditions:
# two runs at once must not write to the same place.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE}
COPY docker/requirements/bucket.txt /lock/
RUN python -m venv /opt/bucket \
 && /opt/bucket/bin/pip install --no-cache-dir --no-compile --require-hashes -r /lock/bucket.txt \
 && rm -rf /lock \
 && useradd --uid 1000 --user-group --home-dir /tmp --no-create-home mlgo \
 && install -d -o mlgo -g mlgo /data
ENV PATH=/opt/bucket/bin:/usr/local/bin:/usr/bin:/bin
USER 1000:1000
VOLUME /data
EXPOSE 9023
ENTRYPOINT ["gcp-storage-emulator", "-d", "/data", "start", "--host", "0.0.0.0", "--port", "9023", "-q"]
CMD ["--default-bucket", "mlgo"]
