{{- define "redlock-operator.nodeAgent" -}}
{{- printf "%s-node-agent" (include "redlock-operator.fullname" .) -}}
{{- end -}}

{{/* The Secret with user and password for the masters; empty where they need none. */}}
{{- define "redlock-operator.fencingSecret" -}}
{{- if .Values.fencing.redis.secretName -}}
{{- .Values.fencing.redis.secretName -}}
{{- else if .Values.quickstart.enabled -}}
{{- include "redlock-operator.quickstartSecret" . -}}
{{- end -}}
{{- end -}}

{{/* A DaemonSet up to its containers: (dict "top" $ "component" …). */}}
{{- define "redlock-operator.fencingDaemonSet" -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ include "redlock-operator.fullname" .top }}-{{ .component }}
  namespace: {{ .top.Release.Namespace }}
  labels:
    {{- include "redlock-operator.labels" .top | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
spec:
  selector:
    matchLabels:
      {{- include "redlock-operator.componentLabels" . | nindent 6 }}
  # Each node has a pod that works throughout an update.
  updateStrategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  # A process that fails at its start fails within this time.
  minReadySeconds: 5
  template:
    metadata:
      {{- include "redlock-operator.podMetadata" . | nindent 6 }}
    spec:
      enableServiceLinks: false
      {{- with include "redlock-operator.podSettings" . }}
      {{- . | nindent 6 }}
      {{- end }}
      # A pod with the volume may run on every node, and must not run on a node without these pods.
      priorityClassName: system-node-critical
      tolerations:
      - operator: Exists
      nodeSelector:
        kubernetes.io/os: linux
        {{- with .top.Values.fencing.nodeSelector }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      # Each of both ends at once during an update. At a shutdown of the node, it freezes until the last permit has ended: after the
      # longest lease of a fenced lock (60 s by default), the 5 s of its reservation, and some seconds to freeze.
      terminationGracePeriodSeconds: 90
      securityContext:
        # The files of cgroups and the directories of pods belong to root.
        runAsUser: 0
        runAsGroup: 0
        seccompProfile:
          type: RuntimeDefault
        {{- with .top.Values.fencing.seLinuxOptions }}
        seLinuxOptions:
          {{- toYaml . | nindent 10 }}
        {{- end }}
{{- end -}}

{{/* A container up to its arguments. SYS_NICE is for SCHED_FIFO, IPC_LOCK for mlockall. */}}
{{- define "redlock-operator.fencingContainer" -}}
{{- include "redlock-operator.program" . }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
    add: [SYS_NICE, IPC_LOCK]
{{- end -}}

{{/* Paths of the node that both DaemonSets use. */}}
{{- define "redlock-operator.fencingMounts" -}}
- name: cgroup
  mountPath: /sys/fs/cgroup
- name: state
  mountPath: /run/redlock
{{- end -}}

{{- define "redlock-operator.fencingVolumes" -}}
- name: cgroup
  hostPath: {path: /sys/fs/cgroup, type: Directory}
# A tmpfs: the records of a boot end with the boot.
- name: state
  hostPath: {path: /run/redlock, type: DirectoryOrCreate}
{{- end -}}
